"""What a rule of the verdict looks at and what it hands back, and the words for numbers.

A number is shown with three digits at most, and never with an exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from velodrome.profiling.facts import Facts
from velodrome.profiling.overrides import Block, Blocks
from velodrome.profiling.whatif import Gain, WhatIf

Json = dict[str, Any]

_BOTH = 0.3  # of a rollout's time: a second part that long is named as well
_DOING = {
    "queue": "waiting for a place",
    "connection": "waiting for a connection",
    "session": "opening and closing its session",
    "model": "waiting for the model",
    "backoff": "backing off",
    "tools": "in tools",
    "verify": "being verified",
}


@dataclass
class Found:
    """A bound, and what is to be said about it. Without `part` the longest part of a rollout is meant."""

    bound: str
    part: str | None
    evidence: list[str]
    advice: list[Json] = field(default_factory=list)
    what: str = ""
    remark: str = ""


@dataclass(frozen=True)
class Case:
    """Everything a rule looks at. `places` are those of each limiter, `cores` this machine's."""

    facts: Facts
    what_if: WhatIf
    blocks: Blocks
    places: dict[str, int]
    named: Mapping[str, Block]
    repeats: int | None
    cores: int


Rule = Callable[[Case], Found | None]


def make_advice(change: str, override: str = "", gain: Gain | None = None) -> Json:
    """One change. Without an override it is one to the code, or to somebody else's server."""
    return {
        "change": change,
        "override": override,
        "predicted_rollouts_per_s": None if gain is None else gain.rollouts_per_s,
        "gain": None if gain is None else gain.gain,
    }


def number(value: float, digits: int = 3) -> str:
    """1,650 and not 1.65e+03."""
    shown = f"{value:.{digits}g}"
    return f"{float(shown):,.0f}" if "e+" in shown or abs(float(shown)) >= 1000 else shown


def ms(seconds: float) -> str:
    """A time, in the unit that suits it."""
    shown = f"{1e3 * seconds:.3g}"
    return f"{shown} ms" if float(shown) < 1000 else f"{number(seconds)} s"


def code(name: str) -> str:
    """What a stage is called in a sentence."""
    return f"the tool {name.removeprefix('tool:')}" if name.startswith("tool:") else name


def longest_part(facts: Facts) -> str:
    """The part that a rollout spends most of its time in, of those that somebody can do something about."""
    return max(_DOING, key=lambda name: facts.parts[name])


def took(facts: Facts) -> str:
    """How long one attempt took. Failed ones take slots as well, but the tree is of kept rollouts alone."""
    if facts.kept == facts.attempts:
        return f"a rollout took {ms(facts.total_s)}"
    failed = f"{facts.attempts - facts.kept:,} of {facts.attempts:,} failed"
    return f"an attempt, kept or failed, took {ms(facts.total_s)} ({failed})"


def time_spent(facts: Facts) -> str:
    """Where a rollout's time goes."""
    parts = {name: facts.parts[name] for name in _DOING}
    first, second = sorted(parts, key=lambda name: parts[name], reverse=True)[:2]
    told = f"{took(facts)}, {ms(parts[first])} of it {_DOING[first]}"
    if parts[second] >= _BOTH * facts.total_s > 0:
        told += f" and {ms(parts[second])} {_DOING[second]}"
    return told


def slots_in_use(facts: Facts) -> str:
    """How many of the slots were in use; of a limit that changed, of how many there were on average."""
    there = f"{facts.limit}" if facts.steady else f"{facts.mean_limit:.1f}"
    return f"{min(facts.slots_used, facts.mean_limit):.1f} of {there} slots were in use"
