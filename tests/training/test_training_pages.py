"""Training runs in the viewer: found, drawn, followed, compared; what is read is bounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.made_pages import SMALL
from tests.support.viewing import TAGS, page_at, viewing
from velodrome.training.assignments import apply
from velodrome.training.loop import run_training
from velodrome.training.settings import RunSettings
from velodrome.viewer.runs.training_curves import evaluations, training_charts
from velodrome.viewer.runs.training_run import MOST_LINES, TrainingRun

Json = dict[str, Any]


@pytest.fixture(scope="module")
def train_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of both phases; the first evaluated greedily, the second with sampled actions."""
    folder = tmp_path_factory.mktemp("train_dir")
    for name, greedy in (("first", "True"), ("second", "False")):
        settings = {**SMALL, "output.train_dir": str(folder), "evaluator.greedy": greedy}
        run_training(apply(RunSettings(run=name), settings), lambda text: None)
    return folder


def folder_of(train_dir: Path, name: str) -> Path:
    return next(train_dir.glob(f"{name}_*"))


def write_metrics(folder: Path, lines: list[Json]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_bytes(orjson.dumps({"run": folder.name, "trainer": {"total_timesteps": 10_000}}))
    (folder / "metrics.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return folder


def epoch(at: int, **more: Any) -> Json:
    return {"step": at * 64, "epoch": at, "phase": "ppo", "loss": 1 / at, "sps": 1000.0, **more}


def evaluated(at: int, value: float, *, greedy: bool) -> Json:
    return {"step": at * 64, "epoch": at, "evaluation": {"mean_return": value, "greedy": greedy, "episodes": 4}}


def test_a_real_run_has_its_curves_phases_evaluations_checkpoints_settings_and_episodes(train_dir: Path):
    run = folder_of(train_dir, "first")
    with viewing(run) as client:
        home = client.get("/").headers["location"]
        assert home == f"/training/{run.name}"
        page = page_at(client, home)
        assert {tag for tag, _ in page.tags} <= TAGS
        for title in ("Return in rollouts, sampled", "Policy loss", "KL from the policy", "Where the time goes"):
            assert title in page.words
        assert page.words.count("teacher-forced") >= 3
        assert "Evaluation, greedy: mean return" in page.words
        assert "Evaluation, sampled" not in page.words
        assert "agent steps of 512" in page.words
        assert "checkpoint_000000000512.pt" in page.words
        assert "env.num_envs 4" in page.words
        episodes = next(link for link in page.links() if link.endswith("/rollouts"))
        assert f"{page_at(client, episodes).words}".count("extractor_hub_10, layout") == 2
        assert "data-film=" in client.get(episodes.replace("/rollouts", "/rollout/1")).text


def test_runs_are_listed_and_compared_with_evaluations_of_each_kind_apart_and_settings_that_differ(train_dir: Path):
    slugs = [folder_of(train_dir, name).name for name in ("first", "second")]
    with viewing(train_dir) as client:
        home = page_at(client, "/")
        assert "4 runs" in home.words  # with the episodes of each
        assert len([link for link in home.links() if link.startswith("/training/")]) == 2
        assert "training · 512 steps · evaluated, sampled" in home.words
        page = page_at(client, "/compare?" + "&".join(f"run={slug}" for slug in slugs))
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "Evaluation, greedy: mean return" in page.words
        assert "Evaluation, sampled: mean return" in page.words
        assert "evaluator.greedy True False" in page.words
        assert [attrs["class"] for tag, attrs in page.tags if tag == "path" and attrs.get("class") == "line-1"] != []
        rollouts = next(link for link in home.links() if link.endswith("episodes"))
        mixed = page_at(client, f"/compare?run={slugs[0]}&run={rollouts.removeprefix('/run/')}", status=404)
        assert "pick runs of one kind" in mixed.words


def test_a_run_that_trains_is_followed(tmp_path: Path):
    folder = write_metrics(tmp_path / "run", [epoch(at) for at in range(1, 4)])
    with viewing(folder) as client:
        before = client.get("/pulse?run=run").json()
        assert "agent steps of 10,000" in page_at(client, "/training/run").words
        with (folder / "metrics.jsonl").open("ab") as file:
            file.write(orjson.dumps(epoch(4, phase="ppo", rollout_return=77.5)) + b"\n" + b'{"torn')
        assert client.get("/pulse?run=run").json()["version"] != before["version"]
        page = page_at(client, "/training/run")
        assert "agent steps of 10,000 256" in page.words
        assert "77.5" in page.words


def test_a_long_run_is_thinned_and_the_page_says_so(tmp_path: Path):
    padding = {f"metric_{at}": float(at) for at in range(60)}
    lines: list[Json] = []
    for at in range(1, 8_001):
        lines.append(epoch(at, **padding))
        if at % 100 == 0:
            lines.append(evaluated(at, float(at), greedy=at % 200 == 0))
    folder = write_metrics(tmp_path / "long", lines)
    data = TrainingRun(folder, "long", "long").read()
    assert MOST_LINES / 2 <= len(data.epochs) <= MOST_LINES + 1
    assert data.epochs[-1]["epoch"] == 8_000
    assert (len(evaluations(data, greedy=True)), len(evaluations(data, greedy=False))) == (40, 40)  # all of them
    lines = [line for each in training_charts([data], ["long"]) for line in each["lines"]]
    assert max(len(line["points"]) for line in lines) <= MOST_LINES + 1
    with viewing(folder) as client:
        assert "one epoch of 16 is shown" in page_at(client, "/training/long").words


HOSTILE = rb"""[]
{broken
{"step": -5, "epoch": 1, "phase": "ppo"}
{"step": "9", "epoch": 1, "phase": {"x": 1}, "loss": "much"}
{"step": 64, "epoch": "<script>", "phase": "<script>alert(1)</script>", "loss": 1e999, "<img src=x>": 3}
{"step": 64, "epoch": 1, "phase": "ppo", "loss": NaN, "parts_ms": {"rollout/teacher": "x"}}
{"step": 64, "evaluation":{"mean_return": "x", "greedy": 3}}
{"lost_bytes": 400}
{"step": 4611686018427387904, "epoch": 1, "phase": "ppo", "loss": 1e300}"""


def test_a_damaged_or_hostile_line_of_metrics_breaks_no_page(tmp_path: Path):
    folder = write_metrics(tmp_path / "run", [epoch(1), epoch(2)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(HOSTILE + b"\n")
    with viewing(folder) as client:
        page = page_at(client, "/training/run")
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "agent steps of 10,000" in page.words
        assert not re.search(r"\b(nan|inf)\b", page.words)
