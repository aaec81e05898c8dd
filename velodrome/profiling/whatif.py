"""What a change would give: the run replayed as it was, replayed with the change, and the ratio of the two.

Predicted = observed x ratio, so that what a replay leaves out is left out on both sides. The same number of rollouts is
replayed, so that the start and the end, when not all slots are in use, weigh as much as they did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from velodrome.profiling.facts import LIMITERS, Facts
from velodrome.profiling.replay import HERE, Limits, Replayed, Stage, replay
from velodrome.profiling.stages import Change, Rollout, Span, as_steps

_LOADED = 0.6  # from here on, waits for the interpreter are a part of what was recorded as waits for others
_LATE_S = 0.02
_ENOUGH = 600  # different rollouts for a replay
_SLOWEST = 10.0
_HIDES = 0.5  # of what was recorded as the model's time


@dataclass(frozen=True, slots=True)
class Gain:
    """A predicted throughput, and how many times the observed one it is."""

    rollouts_per_s: float
    gain: float


class WhatIf:
    """The run as it was, ready to be changed."""

    def __init__(self, facts: Facts, places: Mapping[str, int], *, own_at_most: float | None = None) -> None:
        self.facts = facts
        self.own_s = facts.own_s(at_most=own_at_most)
        self._limiters = {**LIMITERS, **dict.fromkeys(facts.threaded, "threads")}
        for name in facts.connected:  # the narrower of two limits is the one that counts
            limiter = self._limiters.get(name, "")
            if places.get("connection", 0) <= places.get(limiter, facts.limit):
                self._limiters[name] = "connection"
        burned = 0.0 if facts.cpu_is_parallel else facts.at(facts.cpu, HERE)
        seen_s = 0.0 if facts.cpu_s is None else self.own_s
        self.busy = facts.tried_per_s * (seen_s + facts.read_s + facts.write_s + facts.at(facts.held, HERE) + burned)
        late = (facts.lag_s or 0.0) >= _LATE_S
        self.loaded = self.busy >= _LOADED or (late and self.busy >= _LOADED / 2)
        self._rollouts = facts.rollouts
        self.model_hidden = False  # whether the event loop was so late that the model's own time does not show
        rates = {}
        if self.loaded:
            late_s = min(self.busy, 1.0) * (facts.lag_s or 0.0)
            waits = _model_waits(facts.rollouts)
            self.model_hidden = bool(waits) and late_s > _HIDES * fmean(waits)
            self._rollouts = _unheld(facts.rollouts, late_s)
        elif facts.model is not None and facts.model.saturated and facts.model.per_s > 0:
            # it answers so many calls a second, each in the time it takes alone
            rates["model"] = facts.model.per_s
            share = min(facts.model.low_s / facts.model.high_s, 1.0)
            self._rollouts = _with_model(facts.rollouts, lambda wait_s: wait_s * share)
        self._rollouts = self._rollouts[:: -(-len(self._rollouts) // _ENOUGH)]
        crowded = {where for where in facts.servers if facts.crowded(where)}
        self._rollouts = _uncrowded(self._rollouts, crowded | {HERE} if self.loaded else crowded)
        slots = facts.limit if facts.steady else max(round(facts.mean_limit), 1)
        self.limits = Limits(slots, dict(places), rates, dict(facts.processes))
        self._slow = 1.0
        self.base = self._replayed(self.limits)
        for _ in range(3 if self.loaded else 0):
            # Time that nothing accounts for: the machine has others to serve, and what takes CPU takes longer.
            missing_s = (facts.seconds - self.base.seconds) / facts.attempts
            taken_s = self._slow * (self.own_s + burned + (facts.at(facts.held, HERE) if facts.held_burns else 0.0))
            self._slow = min(max(self._slow * (1.0 + missing_s / taken_s), 1.0), _SLOWEST)
            self.base = self._replayed(self.limits)

    def _replayed(self, limits: Limits, change: Change = lambda stage: stage, attempts: int | None = None) -> Replayed:
        facts = self.facts
        here = _parallel if facts.cpu_is_parallel else _slowed(self._slow, held=facts.held_burns)
        steps = as_steps(
            self._rollouts, self._slow * self.own_s, facts.read_s, facts.write_s, self._limiters, chained(here, change)
        )
        return replay(steps, limits, attempts or facts.attempts)

    def gain(
        self, limits: Limits | None = None, change: Change = lambda stage: stage, *, attempts: int | None = None
    ) -> Gain:
        """With other limits, or with each stage changed."""
        facts, base = self.facts, self.base.rollouts_per_s
        found = self._replayed(limits or self.limits, change, attempts)
        ratio = found.rollouts_per_s / base if base > 0 else 1.0
        if self.loaded:
            # What the replay gets wrong of a busy interpreter is no longer wrong to the extent that it is idle.
            idle = 1.0 - min(found.busy.get(HERE, 0.0), 1.0)
            ratio *= (base / facts.tried_per_s) ** idle if base > 0 else 1.0
        return Gain(facts.per_s * ratio, ratio)


def chained(first: Change, then: Change) -> Change:
    """One change after the other."""

    def both(stage: Stage) -> Stage | None:
        changed = first(stage)
        return None if changed is None else then(changed)

    return both


def _parallel(stage: Stage) -> Stage:
    """CPU that does not need the interpreter is a wait like any other."""
    return stage._replace(wait_s=stage.wait_s + stage.cpu_s, cpu_s=0.0) if stage.where == HERE else stage


def _slowed(times: float, *, held: bool) -> Change:
    """What takes CPU takes so many times as long; with `held` what keeps the event loop does, too."""

    def slower(stage: Stage) -> Stage:
        if stage.where != HERE or times == 1.0:
            return stage
        return stage._replace(cpu_s=times * stage.cpu_s, held_s=stage.held_s * (times if held else 1.0))

    return slower


def without(name: str) -> Change:
    """The stage and what stands inside it is left out."""
    names = ("verify", "judge", "library") if name == "verify" else (name,)
    return lambda stage: None if stage.name in names else stage


def in_thread(name: str) -> Change:
    """The code runs in a thread in place of the event loop: what it waits for holds nobody up."""

    def moved(stage: Stage) -> Stage:
        if stage.name != name:
            return stage
        return stage._replace(held_s=0.0, wait_s=stage.wait_s + stage.held_s, limiter="threads")

    return moved


def _unheld(rollouts: list[Rollout], late_s: float) -> list[Rollout]:
    """With the times that the model takes by itself, none of which is shorter than the quickest call.

    An answer that comes while the interpreter is in use is read when it is free again, `late_s` later on average.
    """
    quickest = min(_model_waits(rollouts), default=0.0)
    return _with_model(rollouts, lambda wait_s: max(wait_s - late_s, quickest))


def _model_waits(rollouts: list[Rollout]) -> list[float]:
    return [span.stage.wait_s for rollout in rollouts for span in rollout.spans if span.stage.name == "model"]


def _uncrowded(rollouts: list[Rollout], places: set[str]) -> list[Rollout]:
    """With code that needs a busy process as it ran when it was alone there: what waits is the other code."""
    least: dict[str, float] = {}
    for span in (span for rollout in rollouts for span in rollout.spans):
        if _needs_its_process(span.stage) and span.stage.where in places:
            least[span.stage.name] = min(least.get(span.stage.name, span.stage.wait_s), span.stage.wait_s)
    if not least:
        return rollouts

    def alone(span: Span) -> Span:
        if span.stage.name not in least or not _needs_its_process(span.stage):
            return span
        return replace(span, stage=span.stage._replace(wait_s=least[span.stage.name]))

    return [Rollout(each.recorded, [[alone(span) for span in step] for step in each.steps]) for each in rollouts]


def _needs_its_process(stage: Stage) -> bool:
    """Of code that keeps the collector's own event loop, `_unheld` takes care."""
    return bool(stage.cpu_s or (stage.held_s and stage.where != HERE))


def _with_model(rollouts: list[Rollout], wait_s: Callable[[float], float]) -> list[Rollout]:
    """With other times of the model's, each given the one that was recorded."""

    def changed(span: Span) -> Span:
        if span.stage.name != "model":
            return span
        return replace(span, stage=span.stage._replace(wait_s=wait_s(span.stage.wait_s)))

    return [Rollout(each.recorded, [[changed(span) for span in step] for step in each.steps]) for each in rollouts]
