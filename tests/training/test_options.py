"""Settings of the loop that nothing else shows: who leads, when passes stop, how the rate falls, what is recorded."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
import torch
from small_run import metrics, small, weights

from velodrome.training.envs import make_env
from velodrome.training.loop import roll_out, train
from velodrome.training.policy import Policy
from velodrome.training.run import checkpoint
from velodrome.training.run.session import make_run
from velodrome.training.schedule import phase_at
from velodrome.training.streams import stream


def quiet(_: str) -> None:
    return None


@pytest.mark.parametrize(
    ("led_by", "share", "led"),
    [("teacher", "0", 4), ("student", "1", 0), ("mixed", "0.25", 1), ("mixed", "0.75", 3)],
)
def test_the_teachers_actions_are_taken_where_it_leads_and_the_students_elsewhere(
    tmp_path: Path, led_by: str, share: str, led: int
):
    given = {"supervised__led_by": led_by, "supervised__teacher_share": share}
    settings = small(tmp_path, **given, supervised__keep_coef="1", supervised__keep_steps="512")
    for step, leads in ((0, led), (512, 0)):  # the teacher is asked in both phases, and leads in the first
        run = make_run(settings, tmp_path, quiet)
        phase = phase_at(settings, step)
        assert phase.asks_teacher
        roll_out(run, phase, 8)
        run.close()
        taken = (run.buffer.actions == run.buffer.teacher_actions).view(8, 4, 2).transpose(0, 1).flatten(1).all(1)
        assert taken.tolist() == [True] * leads + [False] * (4 - leads)


@pytest.mark.parametrize(
    ("led_by", "names"),
    [
        ("teacher", {"teacher_return"}),
        ("student", {"mean_return"}),
        ("mixed", {"teacher_return", "mean_return"}),
    ],
)
def test_returns_are_told_of_those_who_led(tmp_path: Path, led_by: str, names: set[str]):
    outcome = train(small(tmp_path, supervised__led_by=led_by, trainer__total_timesteps="512"), quiet)
    told = {name for line in metrics(outcome.folder) for name in line}
    assert told & {"teacher_return", "mean_return"} == names


@pytest.mark.parametrize(("anneal", "falls"), [("True", 1.0), ("False", 0.0)])
def test_the_learning_rate_falls_in_a_line_to_nothing_if_that_is_asked_for(tmp_path: Path, anneal: str, falls: float):
    given = {"trainer__anneal_lr": anneal, "trainer__learning_rate": "0.004", "ppo__learning_rate": "0.002"}
    rates = [line["learning_rate"] for line in metrics(train(small(tmp_path, **given), quiet).folder)]
    begun = [0.004] * 8 + [0.002] * 8
    assert rates == pytest.approx([rate * (1 - falls * epoch / 16) for epoch, rate in enumerate(begun)])


@pytest.mark.parametrize(("target", "passes"), [("0", 4), ("1e9", 4), ("1e-12", 1)])
def test_a_kl_beyond_its_target_ends_the_passes_over_a_rollout(tmp_path: Path, target: str, passes: int):
    given = {"supervised__steps": "0", "trainer__total_timesteps": "192", "ppo__target_kl": target}
    folder = train(small(tmp_path, **given), quiet).folder
    state = checkpoint.read(checkpoint.found(folder)[-1])["optimizer"]["state"]
    assert {int(each["step"]) for each in state.values()} == {3 * passes * 2}  # rollouts, passes, minibatches


def test_a_student_that_reads_planes_learns_with_every_weight(tmp_path: Path):
    settings = small(tmp_path, policy__encoder="cnn", trainer__total_timesteps="2048", supervised__steps="1024")
    lines = metrics(train(settings, quiet).folder)
    spec = make_env(settings.env, 0).spec
    before = Policy(settings.policy, spec, stream(settings.seed, "weights", 0)).state_dict()
    after = weights(next(tmp_path.iterdir()))
    assert any(weight.dim() == 4 for weight in after.values())
    assert [name for name in before if torch.equal(before[name], after[name])] == []
    told = [line["cross_entropy"] for line in lines if line["phase"] == "supervised"]
    assert sum(told[-4:]) < sum(told[:4])


def recorded(folder: Path, said: list[str], **given: str) -> list[Path]:
    """The traces of a run."""
    given = {"enabled": "True", "wait_steps": "0", "warmup_steps": "1", **given}
    words = {f"trainer__profiler__{name}": value for name, value in given.items()}
    return train(small(folder, trainer__total_timesteps="512", **words), said.append).traces


@pytest.mark.parametrize(("most", "kept"), [("1", 0), ("500", 1)])
def test_a_trace_larger_than_it_may_be_is_said_and_not_kept(tmp_path: Path, most: str, kept: int):
    said: list[str] = []
    traces = recorded(tmp_path, said, active_steps="40", record_shapes="True", with_stack="True", max_mb=most)
    assert [path.name for path in next(tmp_path.iterdir()).glob("profiler*")] == [path.name for path in traces]
    assert len(traces) == kept
    (line,) = (text for text in said if text.startswith("profiler: "))
    refused = (
        r"profiler: the trace would be [\d,]+ MB and is not kept "
        r"\(trainer\.profiler\.max_mb=1; fewer active_steps, or with_stack=False\)"
    )
    assert bool(re.fullmatch(refused, line)) == (not kept)


@pytest.mark.parametrize("memory", [True, False])
def test_what_operators_allocate_is_in_the_trace_if_that_is_asked_for(tmp_path: Path, memory: bool):
    (path,) = recorded(tmp_path, [], active_steps="10", profile_memory=str(memory))
    events = orjson.loads(path.read_bytes())["traceEvents"]
    sizes = [each["args"]["Bytes"] for each in events if each.get("name") == "[memory]"]
    assert (any(size > 0 for size in sizes), any(size < 0 for size in sizes)) == (memory, memory)
