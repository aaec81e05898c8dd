"""Where the time of rollouts and updates went: per rollout, since the last table and in all; steps per second by phase.

Parts and the remainder add up to the total, exactly. SPS has one definition: agent steps over the wall time of rollouts
and updates. Evaluation and checkpoints have their own time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from velodrome.timing.percentiles import Quantiles
from velodrome.timing.spans import Span
from velodrome.training.parts import (
    ADVANTAGES,
    BACK,
    BACKWARD,
    ENVIRONMENT,
    FETCH,
    FORWARD,
    GATHER,
    KERNELS,
    OPTIMIZER,
    RESHAPE,
    STORE,
    STUDENT,
    TEACHER,
)

Json = dict[str, Any]

OTHER = "other"
IN_TEACHER = (RESHAPE, FETCH, KERNELS, BACK)
IN_ROLLOUT = (STUDENT, TEACHER, STORE, ENVIRONMENT)
IN_UPDATE = (ADVANTAGES, GATHER, FORWARD, BACKWARD, OPTIMIZER)


@dataclass(slots=True)
class Spent:
    """Seconds by part, over some rollouts: `total` and its parts, each with how it spread."""

    parts: dict[str, Quantiles] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """One rollout's time in a part."""
        found = self.parts.get(name)
        if found is None:
            found = self.parts[name] = Quantiles()
        found.add(max(seconds, 0.0))

    def mean_ms(self, name: str) -> float:
        """Of one rollout; 0 for what never happened."""
        found = self.parts.get(name)
        return found.mean * 1e3 if found else 0.0

    def sum_s(self, name: str) -> float:
        """Of all rollouts."""
        found = self.parts.get(name)
        return found.sum if found else 0.0

    def as_json(self) -> Json:
        """Milliseconds."""
        return {
            name: {
                "mean_ms": found.mean * 1e3,
                "p50_ms": found.quantile(0.5) * 1e3,
                "p95_ms": found.quantile(0.95) * 1e3,
                "max_ms": found.high * 1e3,
                "sum_s": found.sum,
            }
            for name, found in self.parts.items()
        }


def sums(tree: Span) -> dict[str, float]:
    """Seconds by name below a span, in one walk."""
    found: dict[str, float] = {}
    waiting = [tree]
    while waiting:
        for child in waiting.pop().children:
            found[child.name] = found.get(child.name, 0.0) + child.seconds
            if child.children:
                waiting.append(child)
    return found


class Account:
    """The time of a run. `begin_interval` starts the next table."""

    def __init__(self) -> None:
        self.whole = Spent()
        self.recent = Spent()
        self.rollouts = 0  # since the last table
        self.phases: dict[str, dict[str, float]] = {}
        self.apart: dict[str, float] = {}  # evaluation, checkpoints, ...

    def add(self, phase: str, agent_steps: int, rollout: Span, update: Span) -> dict[str, float]:
        """One epoch; its seconds by part."""
        self.rollouts += 1
        spent = _split("rollout", rollout.seconds, sums(rollout), IN_ROLLOUT, IN_TEACHER)
        spent |= _split("update", update.seconds, sums(update), IN_UPDATE, ())
        for kept in (self.recent, self.whole):
            for name, seconds in spent.items():
                kept.add(name, seconds)
        counted = self.phases.setdefault(phase, {"agent_steps": 0, "rollout_s": 0.0, "update_s": 0.0})
        counted["agent_steps"] += agent_steps
        counted["rollout_s"] += rollout.seconds
        counted["update_s"] += update.seconds
        return spent

    def set_apart(self, name: str, seconds: float) -> None:
        """Time that is not part of SPS."""
        self.apart[name] = self.apart.get(name, 0.0) + seconds

    def begin_interval(self) -> None:
        """Forget what the last table showed."""
        self.recent = Spent()
        self.rollouts = 0

    def sps(self, phase: str) -> float:
        """Agent steps per second of one phase."""
        counted = self.phases.get(phase)
        spent = counted["rollout_s"] + counted["update_s"] if counted else 0.0
        return counted["agent_steps"] / spent if counted and spent else 0.0

    def as_json(self) -> Json:
        """Everything, for metrics and files."""
        return {
            "phases": {name: {**counted, "sps": self.sps(name)} for name, counted in self.phases.items()},
            "apart_s": dict(self.apart),
            "parts": self.whole.as_json(),
        }

    def load(self, counted: Mapping[str, Any]) -> None:
        """Go on counting the steps and times of an earlier process; how its rollouts spread is not kept."""
        self.phases = {name: dict(each) for name, each in counted["phases"].items()}
        self.apart = dict(counted["apart_s"])

    def state(self) -> Json:
        """What `load` takes."""
        return {"phases": self.phases, "apart_s": self.apart}


def _split(
    whole: str, seconds: float, found: Mapping[str, float], parts: tuple[str, ...], inner: tuple[str, ...]
) -> dict[str, float]:
    """Seconds by part, and what is left. Of a rollout without the teacher too: means of the same rollouts add up."""
    split = {whole: seconds}
    split |= {f"{whole}/{name}": found.get(name, 0.0) for name in parts}
    split[f"{whole}/{OTHER}"] = seconds - sum(found.get(name, 0.0) for name in parts)
    if inner:
        split |= {f"{whole}/{TEACHER}/{name}": found.get(name, 0.0) for name in inner}
        rest = found.get(TEACHER, 0.0) - sum(found.get(name, 0.0) for name in inner)
        split[f"{whole}/{TEACHER}/{OTHER}"] = rest
    return split
