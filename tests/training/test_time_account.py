"""Time, by a fake clock: parts and remainder are the total, SPS has one meaning; advice and dashboard."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from velodrome.timing.spans import Span, root, span
from velodrome.training import timed
from velodrome.training.losses.ppo import PPO_STATS
from velodrome.training.run.advice import advice
from velodrome.training.run.dashboard import Dashboard
from velodrome.training.run.time_account import TimeAccount, timing_table
from velodrome.training.run.torch_profiler import Tracer
from velodrome.training.settings import ProfilerSettings, RunSettings


class Watch:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spend(watch: Watch, name: str, ms: float) -> None:
    with span(name):
        watch.now += ms / 1e3


PARTS_MS = (3.45, 1.66, 0.5, 0.15, 5.23, 3.89, 0.85, 0.0, 0.27)


def epoch(watch: Watch, times_ms: Sequence[float] = PARTS_MS, *, taught: bool = True) -> tuple[Span, Span]:
    """An epoch with these times of its parts, of the teacher's parts, and of what is in no part."""
    with root(timed.ROLLOUT, watch) as rollout:
        for name, ms in zip((timed.STUDENT, timed.STORE, timed.ENVIRONMENT), times_ms[:3], strict=True):
            spend(watch, name, ms)
        if taught:
            with span(timed.TEACHER):
                for name, ms in zip(
                    (timed.RESHAPE, timed.FETCH, timed.KERNELS, timed.BACK), times_ms[3:7], strict=True
                ):
                    spend(watch, name, ms)
                watch.now += times_ms[7] / 1e3
        watch.now += times_ms[8] / 1e3
    with root(timed.UPDATE, watch) as update:
        spend(watch, timed.FORWARD, 4.0)
        spend(watch, timed.BACKWARD, 6.0)
    return rollout, update


def test_the_table_has_the_seeds_lines_marks_the_largest_and_names_the_rest():
    account, watch = TimeAccount(), Watch()
    for _ in range(10):
        account.add("supervised", 512, *epoch(watch))
    text = timing_table(account, 5120, synchronized=True)
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
    lines = timing_table(account, 5120, synchronized=False).splitlines()
    assert [line.split("  (3")[0] for line in lines[4:7]] == [
        "    - Student Forward:     3.450 ms  <-- BOTTLENECK",
        "    - Teacher Total:       0.000 ms  (not asked)",
        "    - Replay Store:        1.660 ms  (1.66, 1.66)",
    ]
    assert len(lines) == 11


TREE_LINE = re.compile(r"(?P<indent> +)(?:[-•] )?(?P<name>[\w+> -]+):\s+(?P<ms>[\d.]+) ms")
TIMES_MS = st.lists(st.floats(0.0, 40.0), min_size=9, max_size=9)


@given(st.lists(st.tuples(TIMES_MS, st.booleans()), min_size=1, max_size=5), st.sampled_from((1.0, 0.01, 1e-4, 50.0)))
@example([([33.332] * 3 + [0.0] * 6, False)], 1.0)  # 99.996 is printed as 100.0
@example([([0.005] * 9, True), ([0.005] * 9, False)], 1.0)
def test_the_printed_lines_add_up_at_each_level(epochs: list[tuple[list[float], bool]], scale: float):
    account, watch = TimeAccount(), Watch()
    for times_ms, taught in epochs:
        account.add("supervised", 512, *epoch(watch, [scale * ms for ms in times_ms], taught=taught))
    lines = timing_table(account, 5120, synchronized=False).splitlines()
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
    account.apart["evaluation"] = 100.0
    names = ("rollout", "update", f"rollout/{timed.STORE}", f"update/{timed.BACKWARD}")
    assert [spent[name] for name in names] == pytest.approx([0.00588, 0.01, 0.00166, 0.006])
    parts = account.as_json()["parts"]
    names = (timed.STUDENT, timed.TEACHER, timed.STORE, timed.ENVIRONMENT, "other")
    whole = sum(parts[f"rollout/{name}"]["sum_s"] for name in names)
    assert whole == pytest.approx(parts["rollout"]["sum_s"], abs=1e-12)
    assert account.sps("supervised") == pytest.approx(512 / 0.026)
    assert account.sps("ppo") == pytest.approx(512 / 0.01588)
    assert account.sps("none") == 0.0


@pytest.mark.parametrize(
    ("device", "profiled", "order"),
    [
        ("cuda", True, ["clock", "clock", "work", "synchronized", "clock", "clock"]),
        ("cuda", False, ["clock", "clock", "work", "clock", "clock"]),
        ("cpu", True, ["clock", "clock", "work", "clock", "clock"]),
    ],
)
def test_a_profiled_run_waits_for_the_gpu_before_the_clock_of_a_part_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, profiled: bool, order: list[str]
):
    events: list[str] = []

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("synchronized"))
    tracer = Tracer(ProfilerSettings(), tmp_path, torch.device(device), print, profiled=profiled)
    with root(timed.ROLLOUT, clock) as rollout, tracer.part(timed.STUDENT):
        events.append("work")
    assert events == order
    assert [(each.name, each.seconds) for each in rollout.children] == [(timed.STUDENT, len(order) - 3.0)]


def test_advice_names_the_large_parts_and_their_settings_the_largest_first():
    account, watch = TimeAccount(), Watch()
    assert advice(account, RunSettings(), "cuda") == []
    with root(timed.ROLLOUT, watch) as rollout:
        spend(watch, timed.STUDENT, 3.0)
        spend(watch, timed.STORE, 0.1)
    with root(timed.UPDATE, watch) as update:
        spend(watch, timed.BACKWARD, 6.0)
    account.add("ppo", 512, rollout, update)
    backward, student = advice(account, RunSettings(), "cuda")
    assert (backward[:36], "ppo.update_epochs" in backward) == ("66% of the time is the backward pass", True)
    assert (student[:22], "env.num_envs" in student) == ("33% of the time is the", True)
    account.apart["evaluation"] = 1.0
    assert "evaluator.epoch_interval" in advice(account, RunSettings(), "cuda")[0]
    with root(timed.UPDATE, watch) as update:
        spend(watch, timed.BACKWARD, 100_000.0)
    account.add("ppo", 512, rollout, update)
    assert advice(account, RunSettings(), "cpu")[0].startswith("ppo: less than half of the 150 steps/s")


class Terminal(io.StringIO):
    """A terminal of 60 columns, as far as a dashboard knows; `shown` is what is on it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def shown(self) -> list[str]:
        return [line.rpartition("\r\x1b[K")[2] for line in self.getvalue().split("\n")]


STATS = {"phase": "supervised", "sps": 19_692.3, "loss": 0.123456, "rollout_return": 20.3, "episodes": 4}
STATS |= {"agreement": 0.95, "entropy": 1.2, "approx_kl": 0.01}


def test_on_a_terminal_there_is_one_line_that_fits_and_other_lines_stay_above_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    watch, terminal = Watch(), Terminal()
    dashboard = Dashboard(terminal, 10_000, clock=watch)
    say = dashboard.above(lambda text: print(text, file=terminal))
    for step in (512, 1024, 1536):
        watch.now += 1.0
        dashboard.show({"step": step, **STATS})
        if step == 512:
            say("a line")
    assert terminal.shown() == ["a line", "supervised 1,536 of 10,000 steps (15%)  19,692 steps/s"]
    dashboard.clear()
    assert terminal.shown() == ["a line", ""]


def test_without_a_terminal_there_is_a_line_every_ten_seconds_and_the_last_return_stays(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("TERM", "dumb")
    watch, terminal = Watch(), Terminal()
    dashboard = Dashboard(terminal, 10_000, clock=watch)
    ends = ((512, {"rollout_return": 20.3, "episodes": 4}), (1024, {"episodes": 0}))
    for step, more in (*ends, (1536, {"rollout_return": -1234.5, "episodes": 1})):
        watch.now += 6.0
        dashboard.show({"step": step, "phase": "ppo", "sps": 9.0, **dict.fromkeys(PPO_STATS, 0.5), **more})
        watch.now += 6.0 if step > 512 else 0.0  # the first is too early
    assert [line.split("steps/s  ")[1] for line in terminal.getvalue().splitlines()] == [
        f"loss 0.5  return in rollouts {last}  entropy 0.5  approx_kl 0.5  clip_fraction 0.5"
        for last in ("20.3 (sampled, 4 episodes)", "-1,234 (sampled, 1 episode)")
    ]
