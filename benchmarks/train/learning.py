"""What the default recipe learns, seed by seed, beside supervised learning alone and what was tried instead.

    python -m benchmarks.train.learning [--map default|long|small] [--seeds 5] [--only NAME ...] [--json FILE] [--check]

A figure is the return per agent in whole episodes on layouts that training never sees, with sampled actions, and at
the ends of both phases also with the likeliest ones (`greedy`). The default map shows the claims, the small one what
each part of the recipe is worth, the long run how far it goes. A curve is in the file once it has ended, and is not
run again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from benchmarks.summary import Check, Json, table
from benchmarks.train.ours import epoch
from velodrome.training.assignments import apply
from velodrome.training.evaluate import Student, play
from velodrome.training.random_streams import stream
from velodrome.training.recipes.cvc.thinky_supervised_to_ppo import thinky_supervised_to_ppo
from velodrome.training.run.session import Session, make_session
from velodrome.training.settings import RunSettings


@dataclass(frozen=True)
class Map:
    """Where and how long; agent steps."""

    mission: str
    taught: int
    total: int
    evaluations: tuple[int, ...]
    episodes: int
    changes: Mapping[str, Any] = field(default_factory=dict)
    num_envs: int = 64


_K = 1_000
MAPS = {
    "default": Map(
        "extractor_hub_30",
        2_000 * _K,
        6_000 * _K,
        tuple(_K * each for each in (1_000, 2_000, 2_130, 2_260, 2_500, 3_000, 4_000, 5_000, 6_000)),
        512,
    ),
    "long": Map(
        "extractor_hub_30",
        2_000 * _K,
        16_000 * _K,
        tuple(_K * each for each in (2_000, 4_000, 8_000, 12_000, 16_000)),
        2_048,
    ),
    "small": Map(
        "extractor_hub_12",
        200 * _K,
        600 * _K,
        tuple(_K * each for each in (200, 240, 280, 320, 400, 500, 600)),
        128,
        {"policy.hidden": 128},
        num_envs=32,
    ),
}
RECIPE, SUPERVISED, FORMER, TEACHER = "recipe", "supervised only", "former recipe", "teacher"
CANDIDATES: dict[str, dict[str, Any]] = {
    RECIPE: {},
    SUPERVISED: {"supervised.steps": 10**9},
    "no kickstart": {"supervised.kickstart_coef": 0.0},
    "kickstart 0.3": {"supervised.kickstart_coef": 0.3},
    "rewards as they are": {"trainer.normalize_rewards": False},
    "rate not annealed": {"trainer.anneal_lr": False, "ppo.learning_rate": 3e-4},
    "rate x 3": {"ppo.learning_rate": 1.35e-3},
    "rollouts of 16 steps": {"trainer.batch_size": 2_048},
    "4 epochs": {"ppo.update_epochs": 4},
    "gae_lambda 0.85": {"trainer.gae_lambda": 0.85},
    "gamma 0.995": {"trainer.gamma": 0.995},
    "entropy 0.01": {"ppo.entropy_coef": 0.01},
    "minibatches of 2,048": {"trainer.minibatch_size": 2_048},
    "critic apart": {"policy.critic": "apart"},
    "critic not taught": {"supervised.value_coef": 0.0},
    "lstm": {"policy.core": "lstm"},
    FORMER: {
        "env.num_envs": 16,
        "policy.hidden": 128,
        "supervised.kickstart_coef": 0.0,
        "ppo.learning_rate": 1.5e-4,
        "ppo.update_epochs": 4,
        "trainer.batch_size": 512,
        "trainer.minibatch_size": 256,
        "trainer.anneal_lr": False,
        "trainer.normalize_rewards": False,
    },
}
_SHARED = (RECIPE, SUPERVISED)  # the same up to the end of the supervised phase, so that it is trained once


class _Idle:
    """For episodes that the teacher leads."""

    def act(self, obs_N: NDArray[Any], starts_N: object, mask_NA: object = None) -> NDArray[Any]:
        return np.zeros(len(obs_N), np.int64)


def settings_of(place: Map, name: str, seed: int) -> RunSettings:
    """The recipe with the candidate's changes."""
    recipe = thinky_supervised_to_ppo(place.mission, place.taught, place.num_envs)
    common = {"seed": seed, "trainer.total_timesteps": place.total, **place.changes}
    return apply(recipe, {**common, **CANDIDATES[name]})


def score(run: Session, episodes: int, *, greedy: bool) -> Json:
    """The student as it is."""
    result: Json = {"step": run.step}
    for kind in ("sampled", "greedy") if greedy else ("sampled",):
        drawn = stream(run.settings.seed, "evaluation/actions", run.step) if kind == "sampled" else None
        played = play(run.settings, Student(run.policy, run.device, drawn), episodes=episodes)
        result |= {kind: round(played.mean_return, 3), f"{kind}_error": round(played.error, 3)}
    return result


def curve(place: Map, name: str, seed: int, shared: Path) -> Json:
    """Train, and evaluate on the way. `shared`: where the taught student of a seed is left, and found again."""
    ends, points, spent = (place.taught, place.total), [], 0.0
    with TemporaryDirectory(prefix="velodrome-bench-") as temporary:
        folder = Path(temporary)
        if name in _SHARED and shared.exists():
            shutil.copytree(shared, folder, dirs_exist_ok=True)
            points, spent = (orjson.loads((shared / "points.json").read_bytes())[key] for key in ("points", "spent"))
        with closing(make_session(settings_of(place, name, seed), folder, lambda line: None)) as run:
            for step in (each for each in place.evaluations if each > run.step):
                began = time.process_time()
                while run.step < step:
                    epoch(run)
                spent += time.process_time() - began
                points.append({**score(run, place.episodes, greedy=step in ends), "cpu_s": round(spent, 1)})
                if name == RECIPE and step == place.taught:
                    run.save()
                    (folder / "points.json").write_bytes(orjson.dumps({"points": points, "spent": spent}))
                    shutil.copytree(folder, shared, dirs_exist_ok=True)
    return {"points": points}


def curves(place: Map, names: list[str], seeds: int, found: Json, shared: Path) -> Iterator[tuple[str, int]]:
    """Add every curve that is missing to what was found."""
    for name in names:
        for seed in range(seeds):
            if str(seed) not in found.setdefault(name, {}):
                found[name][str(seed)] = curve(place, name, seed, shared / f"{place.mission}_{place.total}_{seed}")
                yield name, seed
    for seed in range(seeds):
        if str(seed) not in found.setdefault(TEACHER, {}):
            played = play(settings_of(place, RECIPE, seed), _Idle(), episodes=place.episodes, teacher_forced=True)
            found[TEACHER][str(seed)] = round(played.mean_return, 3)
            yield TEACHER, seed


def at(run: Json, step: int) -> Json:
    """The first point at or after a step."""
    point: Json = next(each for each in run["points"] if each["step"] >= step)
    return point


def longest_dip(run: Json, taught: int) -> int:
    """The most evaluations in a row below 95% of the taught student."""
    longest = row = 0
    first = at(run, taught)
    for point in run["points"]:
        row = row + 1 if point["step"] > first["step"] and point["sampled"] < 0.95 * first["sampled"] else 0
        longest = max(longest, row)
    return longest


def checks(place: Map, found: Json) -> list[Check]:
    """The claims of docs/training.md, over the seeds that were run."""
    runs, alone = found[RECIPE], found.get(SUPERVISED, {})
    teacher = found.get(TEACHER, {}) if place is MAPS["long"] else {}  # fewer steps end below it: docs/training.md
    ends = {seed: at(run, place.total)["sampled"] for seed, run in runs.items()}
    gains = [end - at(alone[seed], place.total)["sampled"] for seed, end in ends.items() if seed in alone]
    over = [end - teacher[seed] for seed, end in ends.items() if seed in teacher]
    dips = [longest_dip(run, place.taught) for run in runs.values()]
    made = [Check(f"{place.mission}: evaluations in a row below 95% of the taught student", max(dips), 1, "")]
    made += (
        [Check(f"{place.mission}: over supervised only, least of all seeds", min(gains), 0, "", True)] if gains else []
    )
    made += [Check(f"{place.mission}: over the teacher, least of all seeds", min(over), 0, "", True)] if over else []
    return made


def report(place: Map, found: Json) -> None:
    """One line per candidate: mean and range over the seeds."""
    rows = []
    for name, runs in found.items():
        if name == TEACHER or not runs:
            continue
        ends = [at(run, place.total) for run in runs.values()]
        taught = [at(run, place.taught)["sampled"] for run in runs.values()]
        lowest = [min(p["sampled"] for p in run["points"] if p["step"] >= place.taught) for run in runs.values()]
        sampled, greedy = ([end[kind] for end in ends] for kind in ("sampled", "greedy"))
        cells = [f"{np.mean(each):.1f} ({min(each):.1f}-{max(each):.1f})" for each in (taught, lowest, sampled, greedy)]
        rows.append([name, str(len(ends)), *cells, f"{np.mean([end['cpu_s'] for end in ends]):.0f}"])
    print(f"\n{place.mission}: return at {place.total:,} agent steps, mean (range) over the seeds.\n")
    head = ["candidate", "seeds", "taught, sampled", "lowest after it", "end, sampled", "end, greedy", "CPU s"]
    print(table(head, rows))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.train.learning", description=__doc__)
    parser.add_argument("--map", choices=MAPS, default="default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=CANDIDATES, default=list(_SHARED), metavar="NAME")
    parser.add_argument("--json", type=Path, default=Path("results/learning.json"))
    parser.add_argument("--taught", type=Path, default=Path("results/taught"), help="where taught students are kept")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a claim does not hold")
    given = parser.parse_args()
    torch.set_num_threads(1)
    place = MAPS[given.map]
    everything: Json = orjson.loads(given.json.read_bytes()) if given.json.exists() else {}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    found = everything.setdefault(given.map, {})
    for name, seed in curves(place, given.only, given.seeds, found, given.taught):
        given.json.write_bytes(orjson.dumps(everything, option=orjson.OPT_INDENT_2))
        print(f"{place.mission}, {name}, seed {seed}", file=sys.stderr, flush=True)
    report(place, found)
    made = checks(place, found)
    print()
    print(table(["claim", "measured", "goal", ""], (each.cells() for each in made)))
    return int(given.check and not all(each.kept for each in made))


if __name__ == "__main__":
    sys.exit(main())
