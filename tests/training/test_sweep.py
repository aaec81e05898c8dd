"""Sweeps: trials are ordinary runs, found again after any interruption, and the same values are proposed again."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import velodrome
from tests.support.small_run import kill_as_it_grows, metrics
from tests.support.small_sweep import RATES, VALUES, swept, tiny
from velodrome.cli.main import main
from velodrome.errors import InputError
from velodrome.training.recipes import make_recipe
from velodrome.training.sweep import SweepPlan, SweepSettings, Trial, plan_sweep
from velodrome.viewer.runs.folder import RunFolder

pytest.importorskip("optuna", reason='the extra "sweep" is not installed')


def planned(**sweep: Any) -> SweepPlan:
    return plan_sweep(SweepSettings.read({"parameters": RATES, **sweep}), make_recipe("tiny", tiny), {})


def ended(plan: SweepPlan, number: int, trials: dict[int, Trial], value: float | None) -> Trial:
    return Trial(number, plan.proposed(number, trials.values()), value, [])


def test_trials_are_ordinary_runs_and_the_best_is_the_one_with_the_highest_evaluation(tmp_path: Path):
    result = swept(tmp_path, trials=3)
    assert result.finished
    assert result.best is not None
    assert result.best.value == max(trial.value or 0 for trial in result.trials)
    for trial in result.trials:
        (run,) = trial.runs
        folder = result.folder / run["folder"]
        settings = json.loads((folder / "settings.json").read_text())
        assert settings["trainer"]["learning_rate"] == trial.values["trainer.learning_rate"]
        assert settings["ppo"]["update_epochs"] == trial.values["ppo.update_epochs"]
        assert metrics(folder)[-1]["evaluation"]["mean_return"] == trial.value
        assert velodrome.load_policy(folder) is not None
    lines = (result.folder / "trials.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [trial.as_json() for trial in result.trials]


def test_agreement_with_a_teacher_is_no_measure_where_there_is_none():
    assert planned(metric="agreement").sweep.metric == "agreement"
    settings = SweepSettings.read({"parameters": RATES, "metric": "agreement"})
    with pytest.raises(InputError, match="gymnasium:CartPole-v1 has no teacher"):
        plan_sweep(settings, make_recipe("tiny", tiny), {"env.name": "gymnasium:CartPole-v1", "supervised.steps": 0})


def test_the_same_call_again_trains_nothing_not_even_after_a_torn_line_and_more_trials_continue_it(tmp_path: Path):
    first = swept(tmp_path, trials=2)
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("checkpoint_*")}
    written = (first.folder / "trials.jsonl").read_bytes()
    assert swept(tmp_path, trials=2) == first
    assert (first.folder / "trials.jsonl").read_bytes() == written
    (first.folder / "trials.jsonl").write_bytes(written[:-20])  # torn: a trial to finish, which trains nothing
    lines: list[str] = []
    assert swept(tmp_path, trials=2, lines=lines) == first
    assert any("nothing is left to train" in line for line in lines)
    more = swept(tmp_path, trials=3)
    assert more.folder == first.folder
    assert more.trials[:2] == first.trials
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert more.trials == swept(tmp_path / "at once", trials=3).trials


def test_several_seeds_are_several_runs_and_their_mean_counts(tmp_path: Path):
    (trial,) = swept(tmp_path, trials=1, seeds=2, metric="mean_length").trials
    assert [run["seed"] for run in trial.runs] == [0, 1]
    assert len({run["folder"] for run in trial.runs}) == 2
    assert trial.value == sum(run["value"] for run in trial.runs) / 2


def test_a_failed_trial_has_a_reason_and_no_value_and_the_others_run(tmp_path: Path):
    sizes = {"trainer.batch_size": {"choices": [64, 32]}, "trainer.minibatch_size": {"choices": [32, 64]}}
    result = swept(tmp_path, trials=8, parameters=sizes)
    bad = {"trainer.batch_size": 32, "trainer.minibatch_size": 64}
    assert {trial.value is None for trial in result.trials if trial.values == bad} == {True}
    assert {trial.value is None for trial in result.trials if trial.values != bad} == {False}
    failed = next(trial for trial in result.trials if trial.value is None)
    assert failed.reason == "trainer.minibatch_size: larger than batch_size; no minibatch would be left"
    assert failed not in result.ranking
    assert (result.finished, result.as_json()["failed"]) == (True, sum(t.value is None for t in result.trials))


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_values_depend_on_the_seed_and_on_earlier_results_only(method: str):
    def run(results: list[float | None], **more: Any) -> dict[int, Trial]:
        plan, trials = planned(method=method, **more), dict[int, Trial]()
        for number, value in enumerate(results):
            trials[number] = ended(plan, number, trials, value)
        return trials

    results = [float(number % 7) for number in range(14)]
    whole = run(results)
    assert whole == run(results)
    assert whole[0] != run(results, seed=1)[0]
    plan = planned(method=method)
    assert plan.proposed(13, list(whole.values())[:13]) == whole[13].values
    other = run([None, *[-value for value in results[1:]]])
    rates = [trial.values["trainer.learning_rate"] for trial in (*whole.values(), *other.values())]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    if method == "random":
        assert [trial.values for trial in other.values()] == [trial.values for trial in whole.values()]
    else:
        assert other[13].values != whole[13].values


def test_whole_numbers_stay_whole_and_both_ends_are_drawn():
    plan = planned(parameters={"ppo.update_epochs": {"range": [1, 3]}, "policy.hidden": {"log": [16, 64]}})
    drawn = [plan.proposed(number, ()) for number in range(60)]
    assert {values["ppo.update_epochs"] for values in drawn} == {1, 2, 3}
    assert all(type(values["policy.hidden"]) is int and 16 <= values["policy.hidden"] <= 64 for values in drawn)


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.small_sweep import swept
swept(Path(sys.argv[2]), method=sys.argv[3], trials=int(sys.argv[4]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "trials"), [("random", 6), pytest.param("tpe", 12, marks=pytest.mark.chaos)])
def test_a_sweep_killed_at_any_moment_loses_no_trial_and_repeats_none(tmp_path: Path, method: str, trials: int):
    whole = swept(tmp_path / "whole", method=method, trials=trials)
    folder = tmp_path / "killed" / whole.folder.name
    words = [str(Path(__file__).parents[2]), str(tmp_path / "killed"), method, str(trials)]
    moments = [random.Random(kill).randrange(1, size(whole.folder) // 4) for kill in range(3)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    kill_as_it_grows(start, lambda: size(folder), moments)
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert lines == [trial.as_json() for trial in whole.trials]
    assert len(list(folder.glob("trial_*"))) == trials


def size(folder: Path) -> int:
    """Bytes of metrics and trials."""
    return sum(path.stat().st_size for path in folder.rglob("*.jsonl")) if folder.exists() else 0


BAD = [
    ({"parameters": {"trainer.learning_rat": {"log": [1e-4, 1e-2]}}}, r'unknown key .*mean "trainer.learning_rate"'),
    ({"parameters": {"trainer.gamma": {"range": [0.9, 1.2]}}}, r"trainer.gamma: expected a number up to 1, not 1.2"),
    ({"parameters": {"ppo.update_epochs": {"choices": [0, 4]}}}, r"expected a whole number from 1, not 0"),
    ({"parameters": {"ppo.update_epochs": {"range": [1, 2.5]}}}, r"ppo.update_epochs: expected a whole number"),
    ({"parameters": {"ppo.clip": {"log": [0, 1]}}}, r"ppo.clip: log: 0 has no logarithm"),
    ({"parameters": {"ppo.clip": {"range": [1, 0.1]}}}, r"ppo.clip: range: .*smaller one first"),
    ({"parameters": {"ppo": {"clip": {"range": [0.1, 1]}}}}, r"parameters.ppo: write it as"),
    ({"parameters": {"evaluator.epoch_interval": {"choices": [1, 2]}}}, r"epoch_interval: has no effect"),
    ({"parameters": {"env.agents": {"choices": [1, 2]}}}, r"env.agents=2: it is swept as well"),
    ({"parameters": {}}, r"parameters: expected at least 1"),
    ({"parameters": RATES, "metric": "mean_retrn"}, r"metric: expected 'mean_return', "),
    ({"parameters": RATES, "trails": 3}, r'unknown key "trails"; did you mean "trials"'),
]


@pytest.mark.parametrize(("sweep", "message"), BAD, ids=lambda each: str(each)[:40])
def test_a_mistake_is_one_line_before_anything_is_trained(tmp_path: Path, sweep: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message) as raised:
        velodrome.sweep(tiny, sweep, **{**VALUES, "output.train_dir": str(tmp_path)})
    assert len(raised.value.problems) == 1
    assert list(tmp_path.iterdir()) == []


def command(folder: Path, sweep: str, *words: str) -> int:
    """`velo train` with a sweep file, in this folder."""
    (folder / "sweep.yaml").write_text(sweep)
    settings = [f"{name}={value}" for name, value in VALUES.items()]
    recipe = folder / "tiny.py"
    recipe.write_text(
        "from velodrome.training.settings import RunSettings\ndef tiny() -> RunSettings:\n"
        "    return RunSettings(run='tiny')\n"
    )
    place = [f"output.train_dir={folder / 'train_dir'}", "--sweep", str(folder / "sweep.yaml")]
    return main(["train", str(recipe), *settings, *place, *words])


def test_the_command_prints_the_best_as_words_that_train_it_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    sweep = "trials: 2\nparameters:\n  trainer.learning_rate: {log: [1e-4, 1e-2]}\n"
    assert command(tmp_path, sweep, "--dry-run") == 0
    planned_text = capsys.readouterr().out
    assert not (tmp_path / "train_dir").exists()
    assert command(tmp_path, sweep) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    best = result["best"]
    assert (result["finished"], result["trials"], result["failed"]) == (True, 2, 0)
    assert f"trial {best['trial']}: {best['words']}" in planned_text
    assert f"1  {best['trial']}" in err
    assert f"\nbest: {best['words']}\n" in err
    assert best["words"] == f"trainer.learning_rate={best['values']['trainer.learning_rate']}"
    folder = Path(result["folder"]) / best["runs"][0]["folder"]
    assert main(["profile", str(folder)]) == 0
    found = RunFolder(tmp_path / "train_dir").runs()
    assert [run.kind for run in found if run.path == folder] == ["training"]
    assert len(found) == 2


def test_a_sweep_without_a_result_exits_with_1_and_a_mistake_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert command(tmp_path, "parameters: {trainer.gama: {range: [0, 1]}}") == 2
    assert capsys.readouterr().err == 'velo: unknown key "trainer.gama"; did you mean "trainer.gamma"?\n'
    assert command(tmp_path, "trials: 1\nparameters: {ppo.value_coef: {choices: [1e38]}}") == 1
    out, err = capsys.readouterr()
    assert (json.loads(out)["best"], json.loads(out)["failed"]) == (None, 1)
    assert "1 trial failed, as trial 0: " in err
    assert "not a finite number" in err
