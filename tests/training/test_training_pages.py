"""Training runs in the viewer: found, drawn, followed, compared; what is read is bounded."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from made_pages import SMALL
from made_runs import make_run
from viewing import TAGS, page_at, viewing

from velodrome.training.assignments import apply
from velodrome.training.loop import run_training
from velodrome.training.settings import RunSettings
from velodrome.viewer.runs.run_summary import held
from velodrome.viewer.runs.training_curves import drawn, evaluations, phases, shares
from velodrome.viewer.runs.training_run import MOST_EVALUATIONS, SAMPLES, TrainingRun

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
        for title in (
            "Return in rollouts, sampled",
            "Loss",
            "Policy loss",
            "Entropy",
            "KL from the policy",
            "Where the time goes",
        ):
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


def test_the_curves_are_the_numbers_of_the_file(train_dir: Path):
    run = TrainingRun(folder_of(train_dir, "first"), "first", "first")
    data = run.read()
    lines = [orjson.loads(line) for line in (run.path / "metrics.jsonl").read_bytes().splitlines()]
    assert data.epochs == [line for line in lines if "phase" in line]
    assert data.evaluations == [line for line in lines if "evaluation" in line]
    assert phases(data) == [("supervised", 0, 256), ("ppo", 256, 512)]
    time = shares(data)
    assert time is not None
    assert sum(area["share"] for area in time["areas"]) == pytest.approx(1)


def test_the_list_of_a_train_dir_has_runs_and_their_episodes_and_returns(train_dir: Path):
    with viewing(train_dir) as client:
        page = page_at(client, "/")
        assert "4 runs" in page.words
        assert len([link for link in page.links() if link.startswith("/training/")]) == 2
        assert "training · 512 steps · evaluated, sampled" in page.words


def test_runs_over_each_other_have_evaluations_of_each_kind_apart_and_settings_that_differ(train_dir: Path):
    slugs = [folder_of(train_dir, name).name for name in ("first", "second")]
    with viewing(train_dir) as client:
        page = page_at(client, "/compare?" + "&".join(f"run={slug}" for slug in slugs))
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "Evaluation, greedy: mean return" in page.words
        assert "Evaluation, sampled: mean return" in page.words
        assert "evaluator.greedy True False" in page.words
        assert [attrs["class"] for tag, attrs in page.tags if tag == "path" and attrs.get("class") == "line-1"] != []
        rollouts = next(link for link in page_at(client, "/").links() if link.endswith("episodes"))
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


def test_a_long_file_is_read_in_part_and_the_page_says_so(tmp_path: Path):
    padding = {f"metric_{at}": float(at) for at in range(60)}
    lines: list[Json] = []
    for at in range(1, 8_001):
        lines.append(epoch(at, **padding))
        if at % 100 == 0:
            lines.append(evaluated(at, float(at), greedy=at % 200 == 0))
    folder = write_metrics(tmp_path / "long", lines)
    data = TrainingRun(folder, "long", "long").read()
    assert data.sampled
    assert SAMPLES / 2 < len(data.epochs) <= SAMPLES + 500
    assert data.epochs[-1]["epoch"] == 8_000
    assert (len(evaluations(data, greedy=True)), len(evaluations(data, greedy=False))) == (40, 40)  # all of them
    assert max(len(line["points"]) for each in drawn([data], ["long"]) for line in each["lines"]) <= 300
    with viewing(folder) as client:
        assert "epochs were read, evenly spread" in page_at(client, "/training/long").words


def test_very_many_evaluations_are_thinned_and_a_resumed_run_is_read_again(tmp_path: Path):
    many = [evaluated(at, float(at), greedy=True) for at in range(1, 3 * MOST_EVALUATIONS)]
    folder = write_metrics(tmp_path / "run", many)
    run = TrainingRun(folder, "run", "run")
    assert len(run.read().evaluations) <= MOST_EVALUATIONS
    write_metrics(folder, many[:5])
    assert [line["epoch"] for line in run.read().evaluations] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{broken",
        b'{"step": -5, "epoch": 1, "phase": "ppo"}',
        b'{"step": "9", "epoch": 1, "phase": {"x": 1}, "loss": "much"}',
        b'{"step": 64, "epoch": "<script>", "phase": "<script>alert(1)</script>", "loss": 1e999, "<img src=x>": 3}',
        b'{"step": 64, "epoch": 1, "phase": "ppo", "loss": NaN, "parts_ms": {"rollout/teacher": "x"}}',
        b'{"step": 64, "evaluation":{"mean_return": "x", "greedy": 3}}',
        b'{"lost_bytes": 400}',
        b'{"step": 4611686018427387904, "epoch": 1, "phase": "ppo", "loss": 1e300}',
    ],
)
def test_a_damaged_or_hostile_line_of_metrics_breaks_no_page(tmp_path: Path, line: bytes):
    folder = write_metrics(tmp_path / "run", [epoch(1), epoch(2)])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with viewing(folder) as client:
        page = page_at(client, "/training/run")
        assert {tag for tag, _ in page.tags} <= TAGS
        assert "agent steps of 10,000" in page.words
        assert not re.search(r"\b(nan|inf)\b", page.words)


def test_a_run_without_a_line_yet_waits(tmp_path: Path):
    with viewing(write_metrics(tmp_path / "run", [])) as client:
        page = page_at(client, "/training/run")
        assert "No epoch has ended yet" in page.words


def test_looking_for_the_lock_of_a_run_does_not_take_it(tmp_path: Path):
    import fcntl

    lock = tmp_path / ".lock"
    lock.touch()
    assert not held(lock)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert held(lock)


def test_a_training_run_and_rollouts_below_one_folder_are_one_list(tmp_path: Path, train_dir: Path):
    shutil.copytree(folder_of(train_dir, "first"), tmp_path / "train_dir" / "first")
    make_run(tmp_path / "rollouts.jsonl", tasks=3)
    with viewing(tmp_path) as client:
        links = page_at(client, "/").links()
        assert {"/run/rollouts", "/training/train_dir-first", "/run/train_dir-first-episodes"} <= set(links)
        assert client.get("/run/train_dir-first").headers["location"] == "/training/train_dir-first"
        assert page_at(client, "/run/train_dir-first/tasks", status=404)


def test_a_value_of_one_point_or_none_is_drawn_or_left_out(tmp_path: Path):
    lines = [epoch(1, rollout_return=3.0), epoch(2, only=math.pi)]
    data = TrainingRun(write_metrics(tmp_path / "run", lines), "run", "run").read()
    titles = [each["title"] for each in drawn([data], ["run"])]
    assert titles == ["Return in rollouts, sampled", "Loss", "Agent steps per second", "only"]
