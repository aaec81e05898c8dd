"""The loop: phases, what a run leaves, evaluations, and that observing it never changes a weight."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.patience import DEADLINE_S
from tests.support.small_run import Reference, copied, metrics, same, small, trained, weights
from tests.training.test_time_account import Terminal
from velodrome.errors import InputError, StorageError, TrainError
from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import Evaluation
from velodrome.training.loop import roll_out, run_training
from velodrome.training.network.policy import Policy
from velodrome.training.random_streams import stream
from velodrome.training.run import checkpoint
from velodrome.training.run.dashboard import Dashboard
from velodrome.training.run.session import Session, make_session
from velodrome.training.schedule import phase_at


def quiet(_: str) -> None:
    return None


def test_a_run_goes_through_both_phases_and_leaves_its_folder(reference: Reference):
    result = reference("mlp")
    lines = metrics(result.folder)
    assert (result.step, result.finished, result.evaluation) == (1024, True, None)
    assert [line["step"] for line in lines] == list(range(64, 1025, 64))
    assert [line["phase"] for line in lines] == ["supervised"] * 8 + ["ppo"] * 8
    taught = [line for line in lines if "teacher_return" in line]
    assert {(line["phase"], line["episodes"]) for line in taught} == {("supervised", 2)}  # the teacher leads two of 4
    assert sum(line["teacher_return"] for line in taught) > sum(line["rollout_return"] for line in taught)
    assert {line["episodes"] for line in lines if line["phase"] == "ppo" and "rollout_return" in line} == {4}
    names = {path.name for path in result.folder.iterdir()}
    assert {"settings.json", "metrics.jsonl", "checkpoint_000000001024.pt"} <= names
    assert set(result.timing["phases"]) == {"supervised", "ppo"}


@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_timing_profiler_dashboard_evaluation_and_checkpoints_leave_the_weights_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Reference, core: str
):
    monkeypatch.setenv("TERM", "xterm")
    terminal, lines = Terminal(), list[str]()
    observed = {
        "supervised__profiled": True,
        "trainer__timing_interval": 4,
        "trainer__profiler__enabled": True,
        "trainer__profiler__wait_steps": 2,
        "evaluator__evaluate_local": True,
        "evaluator__epoch_interval": 4,
        "trainer__checkpoint_interval": 1,
    }
    settings = small(tmp_path, policy__core=core, **observed)
    result = run_training(settings, lines.append, watch=Dashboard(terminal, 1024).show)
    tables = [text.splitlines()[1] for text in lines if "Rollout Timing Profile" in text]
    assert tables == [f"Rollout Timing Profile (agent_step={step})" for step in (256, 512, 768, 1024)]
    assert "of 1,024 steps (" in terminal.getvalue()
    assert (len(result.traces), result.evaluation and result.evaluation["episodes"]) == (1, 4)
    assert same(weights(reference(core).folder), weights(result.folder))


def test_a_finished_run_is_not_run_again_and_evaluated_again_only_with_other_settings(
    tmp_path: Path, reference: Reference
):
    folder = copied(reference("mlp"), tmp_path)
    before = (folder / "metrics.jsonl").read_bytes()
    lines: list[str] = []
    again = trained(tmp_path, lines)
    assert (again.step, again.finished, again.folder, again.traces) == (1024, True, folder, [])
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert "nothing is left to train" in lines[0]
    first, repeated = (trained(tmp_path, evaluator__evaluate_local=True) for _ in range(2))
    more = trained(tmp_path, evaluator__evaluate_local=True, evaluator__episodes=6)
    assert repeated.evaluation == first.evaluation
    assert first.evaluation is not None
    assert more.evaluation is not None
    assert (first.evaluation["episodes"], more.evaluation["episodes"], more.folder) == (4, 6, folder)
    assert [line["step"] for line in metrics(folder) if "evaluation" in line] == [1024, 1024]


@pytest.mark.parametrize(("share", "led"), [(0.0, 0), (0.75, 3)])
def test_the_teachers_actions_are_taken_where_it_leads(tmp_path: Path, share: float, led: int):
    values = {"supervised__kickstart_coef": 1, "supervised__kickstart_steps": 512}
    settings = small(tmp_path, supervised__teacher_forced=share, **values)
    for step, leads in ((0, led), (512, 0)):  # the teacher is asked in both phases, and leads in the first
        run = make_session(settings, tmp_path, quiet)
        phase = phase_at(settings, step)
        assert phase.asks_teacher
        roll_out(run, phase, 8)
        run.close()
        taken = (run.buffer.actions == run.buffer.teacher_actions).view(8, 4, 2).transpose(0, 1).flatten(1).all(1)
        assert taken.tolist() == [True] * leads + [False] * (4 - leads)


def test_a_teacher_that_is_kept_is_asked_and_counts_in_the_loss(tmp_path: Path, reference: Reference):
    helped = trained(tmp_path, supervised__kickstart_coef=0.5, supervised__kickstart_steps=256)
    alone, kept = (
        [line for line in metrics(run.folder) if line["phase"] == "ppo"] for run in (reference("mlp"), helped)
    )
    request = [[line["parts_ms"]["rollout/teacher"] > 0 for line in each] for each in (alone, kept)]
    assert request == [[False] * 8, [True] * 4 + [False] * 4]
    assert 0.2 < kept[0]["loss"] - alone[0]["loss"] < 1.2  # half of a cross-entropy of about log 5


@pytest.mark.parametrize("falls", [True, False])
def test_the_learning_rate_falls_linearly_to_zero_if_annealed(tmp_path: Path, falls: bool):
    values = {"trainer__anneal_lr": falls, "trainer__learning_rate": 0.004, "ppo__learning_rate": 0.002}
    rates = [line["learning_rate"] for line in metrics(trained(tmp_path, **values).folder)]
    base = [0.004] * 8 + [0.002] * 8
    assert rates == pytest.approx([rate * (1 - falls * epoch / 16) for epoch, rate in enumerate(base)])


@pytest.mark.parametrize(("target", "passes"), [(0, 4), (1e-12, 1)])
def test_a_kl_beyond_its_target_ends_the_passes_over_a_rollout(tmp_path: Path, target: float, passes: int):
    values = {"supervised__steps": 0, "trainer__total_timesteps": 192, "ppo__target_kl": target}
    folder = trained(tmp_path, **values).folder
    state = checkpoint.read(checkpoint.checkpoints(folder)[-1])["optimizer"]
    assert int(state["step"]) == 3 * passes * 2  # rollouts, passes, minibatches


def test_a_student_that_reads_planes_learns_with_every_weight(tmp_path: Path):
    settings = small(tmp_path, policy__encoder="cnn", supervised__steps=1024)
    folder = run_training(settings).folder
    before = Policy(settings.policy, make_env(settings.env, 0).spec, stream(settings.seed, "weights", 0)).state_dict()
    after = weights(folder)
    assert any(weight.dim() == 4 for weight in after.values())
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    entropies = [line["cross_entropy"] for line in metrics(folder)]
    assert sum(entropies[-4:]) < sum(entropies[:4])


def test_half_precision_trains_and_is_repeatable(tmp_path: Path):
    short = {"trainer__total_timesteps": 192, "supervised__steps": 128}
    whole, *halves = (
        weights(trained(tmp_path / name, trainer__mixed_precision=name != "whole", **short).folder)
        for name in ("whole", "a", "b")
    )
    assert same(*halves)
    assert {weight.dtype for weight in halves[0].values() if weight.is_floating_point()} == {torch.float32}
    assert not same(whole, halves[0])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # of Python 3.13.0
def test_a_compiled_student_learns_nearly_the_same(tmp_path: Path):
    more = {"trainer__total_timesteps": 256, "supervised__steps": 128}
    plain = weights(trained(tmp_path / "plain", **more).folder)
    compiled = weights(trained(tmp_path / "compiled", trainer__compile=True, **more).folder)
    for name, weight in plain.items():
        assert torch.allclose(weight, compiled[name], atol=1e-3), name


def test_a_loss_that_is_not_finite_ends_the_run_and_the_last_checkpoint_is_good(tmp_path: Path):
    good = trained(tmp_path, trainer__total_timesteps=192)
    state = checkpoint.read(checkpoint.checkpoints(good.folder)[-1])
    state["policy"]["heads.bias"][0] = float("nan")
    checkpoint.save(good.folder, 192, state)
    with pytest.raises(TrainError, match=r"after agent step 192, .* is not a finite number.*trainer.learning_rate"):
        trained(tmp_path)
    assert checkpoint.checkpoints(good.folder)[-1].name == "checkpoint_000000000192.pt"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_and_a_rollout_beyond_memory_are_mistakes_in_a_setting(tmp_path: Path):
    with pytest.raises(InputError, match=r"trainer.device=cuda"):
        make_session(small(tmp_path, trainer__device="cuda"), tmp_path, quiet)
    with pytest.raises(InputError, match=r"trainer.batch_size=8000000000000 .*memory"):
        make_session(small(tmp_path, trainer__batch_size=8_000_000_000_000), tmp_path, quiet)


def test_an_error_after_everything_was_made_is_not_called_a_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(Session, "reset", fail)
    with pytest.raises(RuntimeError, match="size mismatch"):
        make_session(small(tmp_path), tmp_path, quiet)


def test_episodes_without_an_end_are_reported_and_one_episode_has_no_standard_error():
    assert Evaluation((3.0,), (5,), None).as_json() == {"episodes": 1, "mean_return": 3.0, "mean_length": 5.0}
    numbers = {"episodes": 2, "mean_return": 1.5, "mean_length": 6.0, "unfinished": 1}
    result = Evaluation((1.0, 2.0), (5, 7), None, unfinished=1).as_json()
    assert result == {**numbers, "standard_error": pytest.approx(0.5)}


FULL = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.path.insert(0, sys.argv[1])
from tests.support.small_run import trained
trained(Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_full_disk_is_one_clear_line_and_the_run_resumes_when_there_is_room(tmp_path: Path, reference: Reference):
    command = [sys.executable, "-c", FULL, str(Path(__file__).parents[2]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"velodrome.errors.{StorageError.__name__}")
    assert "cannot be written (File too large)" in last
    assert same(weights(reference("mlp").folder), weights(trained(tmp_path).folder))
