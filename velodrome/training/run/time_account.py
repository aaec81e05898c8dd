"""Where the time of rollouts and updates goes, and the timing tree in the seed's lines.

Parts and the remainder add up to the total, as printed too. SPS has one definition: agent steps over the wall time of
rollouts and updates. Evaluation and checkpoints are counted apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from velodrome.timing.figures import counted
from velodrome.timing.percentiles import Quantiles
from velodrome.timing.report import Line, decimals, rounded_parts, tree
from velodrome.timing.spans import Span
from velodrome.training import timed

Json = dict[str, Any]

OTHER = "other"
IN_TEACHER = tuple(f"{timed.TEACHER}/{part}" for part in (timed.RESHAPE, timed.FETCH, timed.KERNELS, timed.BACK))
IN_ROLLOUT = (timed.STUDENT, timed.TEACHER, timed.STORE, timed.ENVIRONMENT, *IN_TEACHER)
IN_UPDATE = (timed.ADVANTAGES, timed.MINIBATCH, timed.FORWARD, timed.BACKWARD, timed.OPTIMIZER)

_BAR = "=" * 60
_TEACHER = f"rollout/{timed.TEACHER}"
_LABELS = {  # the lines of the tree in their order
    "rollout": "Rollout Total:",
    f"rollout/{timed.STUDENT}": "Student Forward:",
    _TEACHER: "Teacher Total:",
    f"{_TEACHER}/{timed.RESHAPE}": "Reshape:",
    f"{_TEACHER}/{timed.FETCH}": "GPU->CPU:",
    f"{_TEACHER}/{timed.KERNELS}": "Nim Calls:",
    f"{_TEACHER}/{timed.BACK}": "Stack+Back:",
    f"{_TEACHER}/{OTHER}": "Teacher Other:",
    f"rollout/{timed.STORE}": "Replay Store:",
    f"rollout/{timed.ENVIRONMENT}": "Environment:",
    f"rollout/{OTHER}": "Other:",
}
_MARKED = 0.25  # a part below this share of a rollout is not marked as the bottleneck


class TimeAccount:
    """The time of a run. `begin_interval` starts the next table."""

    def __init__(self) -> None:
        self.whole: dict[str, Quantiles] = {}  # seconds per rollout by part: `rollout`, `rollout/teacher`, …
        self.recent: dict[str, Quantiles] = {}  # the same since the last table
        self.rollouts = 0  # since then
        self.phases: dict[str, dict[str, float]] = {}
        self.apart: dict[str, float] = {}  # evaluation, checkpoints, …

    def add(self, phase: str, agent_steps: int, rollout: Span, update: Span) -> dict[str, float]:
        """Add an epoch; returns its seconds by part."""
        self.rollouts += 1
        spent = _split(rollout, IN_ROLLOUT) | _split(update, IN_UPDATE)
        for times in (self.recent, self.whole):
            for name, seconds in spent.items():
                times.setdefault(name, Quantiles()).add(max(seconds, 0.0))
        counts = self.phases.setdefault(phase, {"agent_steps": 0, "rollout_s": 0.0, "update_s": 0.0})
        counts["agent_steps"] += agent_steps
        counts["rollout_s"] += rollout.seconds
        counts["update_s"] += update.seconds
        return spent

    @contextmanager
    def count_apart(self, name: str) -> Iterator[None]:
        """Around work whose time is not part of SPS."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.apart[name] = self.apart.get(name, 0.0) + time.perf_counter() - began

    def begin_interval(self) -> None:
        self.recent = {}
        self.rollouts = 0

    def sps(self, phase: str) -> float:
        """Agent steps per second of one phase."""
        counts = self.phases.get(phase)
        spent = counts["rollout_s"] + counts["update_s"] if counts else 0.0
        return counts["agent_steps"] / spent if counts and spent else 0.0

    @property
    def trained_s(self) -> float:
        """Wall time of all rollouts and updates."""
        return sum(counts["rollout_s"] + counts["update_s"] for counts in self.phases.values())

    def as_json(self) -> Json:
        """Everything, for the result and files."""
        return {
            "phases": {name: {**counts, "sps": self.sps(name)} for name, counts in self.phases.items()},
            "apart_s": dict(self.apart),
            "parts": {
                name: {
                    "mean_ms": times.mean * 1e3,
                    "p50_ms": times.quantile(0.5) * 1e3,
                    "p95_ms": times.quantile(0.95) * 1e3,
                    "max_ms": times.high * 1e3,
                    "sum_s": times.sum,
                }
                for name, times in self.whole.items()
            },
        }

    def state(self) -> Json:
        """What a checkpoint keeps; distributions are not kept."""
        return {"phases": self.phases, "apart_s": self.apart}

    def load(self, state: Mapping[str, Any]) -> None:
        self.phases = {name: dict(counts) for name, counts in state["phases"].items()}
        self.apart = dict(state["apart_s"])


def _split(whole: Span, parts: Iterable[str]) -> dict[str, float]:
    """Seconds by path, and what is in no part. Parts that did not run are 0, so means of the same rollouts add up."""
    spent = dict.fromkeys((whole.name, *(f"{whole.name}/{part}" for part in parts)), 0.0)

    def add(each: Span, path: str) -> None:
        spent[path] = spent.get(path, 0.0) + each.seconds
        for child in each.children:
            add(child, f"{path}/{child.name}")

    add(whole, whole.name)
    for path in [whole.name, *({_TEACHER} & spent.keys())]:
        inside = sum(seconds for each, seconds in spent.items() if each.rpartition("/")[0] == path)
        spent[f"{path}/{OTHER}"] = spent[path] - inside
    return spent


def _shown_ms(means_ms: Mapping[str, float]) -> dict[str, float]:
    """The means as the tree prints them: rounded so that the printed parts add up to what they are parts of."""
    total = means_ms["rollout"]
    unit = 10 ** decimals(round(total, decimals(total)))
    units = {"rollout": round(total * unit)}
    for whole in ("rollout", _TEACHER):
        parts = [path for path in _LABELS if path.rpartition("/")[0] == whole]
        units |= zip(parts, rounded_parts(units[whole], [means_ms[path] * unit for path in parts]), strict=True)
    return {path: count / unit for path, count in units.items()}


def timing_table(account: TimeAccount, agent_step: int, *, synchronized: bool) -> str:
    """The rollouts since the last table: means, percentiles, the largest part marked."""
    times, means_ms = account.recent, {path: each.mean * 1e3 for path, each in account.recent.items()}
    taught = means_ms[_TEACHER] > 0
    shown_ms = _shown_ms(means_ms)
    paths = [path for path in _LABELS if taught or not path.startswith(f"{_TEACHER}/")]
    largest = max((path for path in paths if path not in ("rollout", _TEACHER)), key=means_ms.__getitem__)
    marked = largest if means_ms[largest] >= _MARKED * means_ms["rollout"] else None
    lines = []
    for path in paths:
        p50_ms, p95_ms = (times[path].quantile(q) * 1e3 for q in (0.5, 0.95))
        note = f"{p50_ms:.2f}, {p95_ms:.2f}" if times[path].sum else ""
        note = "not asked" if path == _TEACHER and not taught else note
        lines.append(Line(_LABELS[path], path.count("/"), shown_ms[path], bottleneck=path == marked, note=note))
    title, *parts = tree(f"Rollout Timing Profile (agent_step={agent_step})", lines).splitlines()
    clock = "device synchronized before a clock stops" if synchronized else "nothing to synchronize on this device"
    mean = f"mean of {counted(account.rollouts, 'rollout')} (p50, p95)"
    return "\n".join([_BAR, title, _BAR, *parts, _BAR, f"  {mean}; update {means_ms['update']:.2f} ms each; {clock}"])
