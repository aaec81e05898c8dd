"""Time, by a fake clock: parts and remainder are the total, SPS has one meaning; advice and dashboard."""

from __future__ import annotations

import io
import re
from decimal import Decimal

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from velodrome.timing.spans import Span, root, span
from velodrome.training import timed
from velodrome.training.assignments import apply
from velodrome.training.losses.ppo import PPO_STATS
from velodrome.training.run.advice import advice
from velodrome.training.run.dashboard import Dashboard
from velodrome.training.run.time_account import TimeAccount, timing_table
from velodrome.training.settings import ActionSupervisedAndCriticConfig, RunSettings, leaves


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(watch: Watch, name: str, ms: float) -> None:
    with span(name):
        watch.now += ms / 1e3


def epoch(watch: Watch, *, taught: bool = True, fetch_ms: float = 5.23) -> tuple[Span, Span]:
    with root(timed.ROLLOUT, watch) as rollout:
        spend(watch, timed.STUDENT, 3.45)
        if taught:
            with span(timed.TEACHER):
                spend(watch, timed.RESHAPE, 0.15)
                spend(watch, timed.FETCH, fetch_ms)
                spend(watch, timed.KERNELS, 3.89)
                spend(watch, timed.BACK, 0.85)
        spend(watch, timed.STORE, 1.66)
        spend(watch, timed.ENVIRONMENT, 0.5)
        watch.now += 0.00027
    with root(timed.UPDATE, watch) as update:
        spend(watch, timed.FORWARD, 4.0)
        spend(watch, timed.BACKWARD, 6.0)
    return rollout, update


def test_the_table_has_the_seeds_lines_marks_the_largest_and_names_the_rest():
    account, watch = TimeAccount(), Watch()
    for _ in range(10):
        account.add("supervised", 512, *epoch(watch))
    text = timing_table(account, 5120, settled=True)
    assert [line.split("  (")[0].rstrip() for line in text.splitlines()[:-1]] == [
        "=" * 60,
        "Rollout Timing Profile (agent_step=5120)",
        "=" * 60,
        "  Rollout Total:           16.00 ms",
        "    - Student Forward:      3.45 ms",
        "    - Teacher Total:       10.12 ms",
        "        • Reshape:          0.15 ms",
        "        • GPU->CPU:         5.23 ms  <-- BOTTLENECK",
        "        • Nim Calls:        3.89 ms",
        "        • Stack+Back:       0.85 ms",
        "        • Teacher Other:    0.00 ms",
        "    - Replay Store:         1.66 ms",
        "    - Environment:          0.50 ms",
        "    - Other:                0.27 ms",
        "=" * 60,
    ]
    assert "mean of 10 rollouts" in text
    assert "device synchronized" in text


def test_a_teacher_that_was_not_asked_is_one_line():
    account, watch = TimeAccount(), Watch()
    for _ in range(10):
        account.add("ppo", 512, *epoch(watch, taught=False))
    lines = timing_table(account, 5120, settled=False).splitlines()
    assert [line.split("  (3")[0] for line in lines[4:7]] == [
        "    - Student Forward:     3.450 ms  <-- BOTTLENECK",
        "    - Teacher Total:       0.000 ms  (not asked)",
        "    - Replay Store:        1.660 ms  (1.66, 1.66)",
    ]
    assert len(lines) == 11


TREE_LINE = re.compile(r"(?P<indent> +)(?:[-•] )?(?P<name>[\w+> -]+):\s+(?P<ms>[\d.]+) ms")
TIMES_MS = st.lists(st.floats(0.0, 40.0), min_size=9, max_size=9)


def timed_epoch(watch: Watch, times_ms: list[float], *, taught: bool) -> tuple[Span, Span]:
    """An epoch with these times of its parts, and of what is in no part."""
    in_teacher = (timed.RESHAPE, timed.FETCH, timed.KERNELS, timed.BACK)
    with root(timed.ROLLOUT, watch) as rollout:
        for name, ms in zip((timed.STUDENT, timed.STORE, timed.ENVIRONMENT), times_ms[:3], strict=True):
            spend(watch, name, ms)
        if taught:
            with span(timed.TEACHER):
                for name, ms in zip(in_teacher, times_ms[3:7], strict=True):
                    spend(watch, name, ms)
                watch.now += times_ms[7] / 1e3
        watch.now += times_ms[8] / 1e3
    with root(timed.UPDATE, watch) as update:
        pass
    return rollout, update


@given(st.lists(st.tuples(TIMES_MS, st.booleans()), min_size=1, max_size=5), st.sampled_from((1.0, 0.01, 1e-4, 50.0)))
@example([([33.332] * 3 + [0.0] * 6, False)], 1.0)  # 99.996 is printed as 100.0
@example([([0.005] * 9, True), ([0.005] * 9, False)], 1.0)
def test_the_printed_lines_add_up_at_each_level(epochs: list[tuple[list[float], bool]], scale: float):
    account, watch = TimeAccount(), Watch()
    for times_ms, taught in epochs:
        account.add("supervised", 512, *timed_epoch(watch, [scale * ms for ms in times_ms], taught=taught))
    lines = timing_table(account, 5120, settled=False).splitlines()
    printed = [
        (len(match["indent"]), match["name"], Decimal(match["ms"])) for match in map(TREE_LINE.match, lines) if match
    ]
    (whole,) = (ms for indent, _, ms in printed if indent == 2)
    teacher = next(ms for _, name, ms in printed if name == "Teacher Total")
    in_teacher = [ms for indent, _, ms in printed if indent == 8]
    assert len(printed) == (11 if in_teacher else 6)
    assert sum(ms for indent, _, ms in printed if indent == 4) == whole
    assert sum(in_teacher) == teacher


def test_parts_and_remainder_are_the_total_and_a_phase_has_its_own_speed():
    account, watch = TimeAccount(), Watch()
    account.add("supervised", 512, *epoch(watch))
    spent = account.add("ppo", 512, *epoch(watch, taught=False))
    account.add_apart("evaluation", 100.0)
    assert (spent["rollout"], spent["update"]) == (pytest.approx(0.00588), pytest.approx(0.01))
    assert (spent[f"rollout/{timed.STORE}"], spent[f"update/{timed.BACKWARD}"]) == (
        pytest.approx(0.00166),
        pytest.approx(0.006),
    )
    parts = account.as_json()["parts"]
    whole = sum(
        parts[f"rollout/{name}"]["sum_s"]
        for name in (timed.STUDENT, timed.TEACHER, timed.STORE, timed.ENVIRONMENT, "other")
    )
    assert whole == pytest.approx(parts["rollout"]["sum_s"], abs=1e-12)
    assert account.sps("supervised") == pytest.approx(512 / 0.026)
    assert account.sps("ppo") == pytest.approx(512 / 0.01588)
    assert account.sps("none") == 0.0


def test_parts_of_the_teacher_add_up_in_a_table_of_both_phases_too():
    account, watch = TimeAccount(), Watch()
    account.add("supervised", 512, *epoch(watch))
    for _ in range(9):
        account.add("ppo", 512, *epoch(watch, taught=False))
    lines = {line.split(":")[0].strip(" -•"): line for line in timing_table(account, 5120, settled=False).splitlines()}
    assert lines["Teacher Total"].split()[3] == "1.012"
    assert [lines[name].split("  (")[0].split()[-2] for name in ("Reshape", "GPU->CPU", "Stack+Back")] == [
        "0.015",
        "0.523",
        "0.085",
    ]
    assert lines["Student Forward"].endswith("  <-- BOTTLENECK  (3.45, 3.45)")


@pytest.mark.parametrize(
    ("device", "profiled", "order"),
    [
        ("cuda", True, ["clock", "clock", "work", "settled", "clock", "clock"]),
        ("cuda", False, ["clock", "clock", "work", "clock", "clock"]),
        ("cpu", True, ["clock", "clock", "work", "clock", "clock"]),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_a_profiled_run_waits_for_the_gpu_before_the_clock_of_a_part_stops(
    monkeypatch: pytest.MonkeyPatch, device: str, profiled: bool, order: list[str], traced: bool
):
    events: list[str] = []

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("settled"))
    timer = timed.PartTimer(torch.device(device), profiled=profiled)
    timer.traced = traced
    with root(timed.ROLLOUT, clock) as rollout, timer(timed.STUDENT):
        events.append("work")
    assert events == order
    assert [(each.name, each.seconds) for each in rollout.children] == [(timed.STUDENT, len(order) - 3.0)]


def test_advice_about_evaluation_names_a_setting_that_would_change_it():
    account, watch = TimeAccount(), Watch()
    account.add("ppo", 512, *epoch(watch, taught=False))
    assert "mean of 1 rollout " in timing_table(account, 512, settled=False)
    account.add_apart("evaluation", 1.0)
    assert advice(account, RunSettings(), 64, "cuda")[0] == (
        "evaluation takes 63.0 times as long as training: evaluator.episodes=16 or evaluator.evaluate_local=False"
    )
    for _ in range(99):
        account.add("ppo", 512, *epoch(watch, taught=False))
    assert advice(account, RunSettings(), 64, "cuda")[0] == (
        "evaluation takes 63% on top of training: evaluator.epoch_interval=200"
    )


IN_UPDATE = (timed.FORWARD, timed.BACKWARD, timed.OPTIMIZER)
KEPT = ActionSupervisedAndCriticConfig(steps=512, kickstart_coef=0.1, kickstart_steps=64)


def mostly(part: str, phase: str = "ppo") -> TimeAccount:
    """An epoch that consists almost entirely of one part."""
    account, watch = TimeAccount(), Watch()
    with root(timed.ROLLOUT, watch) as rollout:
        if part in (timed.KERNELS, timed.FETCH):
            with span(timed.TEACHER):
                spend(watch, part, 9.0)
        elif part not in IN_UPDATE:
            spend(watch, part, 9.0)
    with root(timed.UPDATE, watch) as update:
        spend(watch, part if part in IN_UPDATE else timed.FORWARD, 9.0 if part in IN_UPDATE else 0.1)
    account.add(phase, 512, rollout, update)
    return account


def test_every_setting_that_advice_names_exists():
    names = {leaf.name for leaf in leaves(RunSettings())}
    for part in (timed.STUDENT, timed.KERNELS, timed.FETCH, timed.STORE, timed.ENVIRONMENT, *IN_UPDATE):
        (line,) = advice(mostly(part), RunSettings(supervised=KEPT), 64, "cuda")
        named = set(re.findall(r"[a-z]+(?:\.[a-z_]+)+|[a-z]+_[a-z_]+", line))
        assert named, line
        assert named <= names, line


LARGER, FEWER, NARROWER = "trainer.minibatch_size=512", "ppo.update_epochs", "policy.hidden"
TWICE, HALF = "env.num_envs=32 with trainer.batch_size=1024", "trainer.mixed_precision=True"


@pytest.mark.parametrize(
    ("part", "device", "values", "ways"),
    [
        (timed.STUDENT, "cpu", {}, [TWICE]),
        (timed.STUDENT, "cuda", {}, [TWICE, HALF]),
        (timed.STUDENT, "cuda", {"trainer.mixed_precision": True}, [TWICE]),
        (timed.FORWARD, "cpu", {}, [LARGER, FEWER, NARROWER]),
        (timed.BACKWARD, "cpu", {"trainer.minibatch_size": 300}, [LARGER, FEWER, NARROWER]),
        (timed.BACKWARD, "cpu", {"trainer.minibatch_size": 512}, [FEWER, NARROWER]),
        (timed.OPTIMIZER, "cuda", {"ppo.update_epochs": 1}, [LARGER, NARROWER]),
        (timed.OPTIMIZER, "cpu", {"ppo.update_epochs": 1, "trainer.minibatch_size": 512, "policy.hidden": 4}, []),
        (timed.STORE, "cpu", {"env.num_envs": 65_536}, []),
        (timed.ENVIRONMENT, "cpu", {"env.name": "gymnasium:CartPole-v1"}, []),
        (timed.KERNELS, "cpu", {"env.name": "extractor_hub_8"}, ["supervised.steps"]),
    ],
)
def test_advice_is_only_about_what_could_help(part: str, device: str, values: dict[str, object], ways: list[str]):
    lines = advice(mostly(part), apply(RunSettings(), values), 64, device)
    offered = [way for line in lines for way in line.partition(": ")[2].split(", or ")]
    assert len(offered) == len(ways)
    assert all(way in text for way, text in zip(ways, offered, strict=True)), lines


def test_advice_is_silent_about_ppo_where_there_was_none_and_about_everything_without_times():
    (line,) = advice(mostly(timed.BACKWARD, "supervised"), RunSettings(), 64, "cpu")
    assert FEWER not in line
    assert advice(TimeAccount(), RunSettings(), 64, "cpu") == []


class Terminal(io.StringIO):
    """A terminal of 40 columns, as far as a dashboard knows; `shown` is what is on it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        lines: list[str] = []
        for piece in re.split(r"(\x1b\[\d+A\x1b\[J|\n)", self.getvalue()):
            if piece.startswith("\x1b"):
                del lines[-int(piece[2:].partition("A")[0]) :]
            elif piece not in ("", "\n"):
                lines += [piece[at : at + 40] for at in range(0, len(piece), 40)]  # wrapped
        return lines


STATS = {"loss": 0.123456, "rollout_return": 20.3, "episodes": 4, "agreement": 0.95, "entropy": 1.2, "approx_kl": 0.01}


def test_on_a_narrow_terminal_there_is_one_block_and_other_lines_stay_above_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    account, watch, terminal = TimeAccount(), Watch(), Terminal()
    dashboard = Dashboard(terminal, 10_000, clock=watch)
    say = dashboard.above(lambda text: print(text, file=terminal))
    for step in (512, 1024, 1536):
        account.add("supervised", 512, *epoch(watch))
        watch.now += 1.0
        dashboard.show(step, "supervised", account, STATS)
        if step == 512:
            say("a line")
    shown = terminal.shown()
    assert shown[0] == "a line"
    assert [line for line in shown if "of 10,000" in line] == ["supervised        1,536 of 10,000 steps"]
    assert max(map(len, shown)) < 40
    assert shown[2] == "loss 0.123"  # what does not fit whole is left out
    dashboard.clear()
    assert terminal.shown() == ["a line"]


def test_without_a_terminal_there_is_a_line_every_ten_seconds_and_the_last_return_stays(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TERM", "dumb")
    account, watch, terminal = TimeAccount(), Watch(), Terminal()
    dashboard = Dashboard(terminal, 10_000, clock=watch)
    account.add("ppo", 512, *epoch(watch, taught=False))
    for step, more in (
        (512, {"rollout_return": 20.3, "episodes": 4}),
        (1024, {"episodes": 0}),
        (1536, {"rollout_return": -1234.5, "episodes": 1}),
    ):
        watch.now += 6.0
        dashboard.show(step, "ppo", account, {**dict.fromkeys(PPO_STATS, 0.5), **more})
        watch.now += 6.0 if step > 512 else 0.0  # the first is too early
    assert [line.split("steps/s  ")[1] for line in terminal.getvalue().splitlines()] == [
        f"loss 0.5  return in rollouts {last}  entropy 0.5  approx_kl 0.5  clip_fraction 0.5"
        for last in ("20.3 (sampled, 4 episodes)", "-1,234 (sampled, 1 episode)")
    ]
