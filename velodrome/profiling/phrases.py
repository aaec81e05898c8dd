"""The words of a verdict: its numbers, and where a rollout's time goes."""

from __future__ import annotations

from typing import Any

from velodrome.profiling.observed import Observed
from velodrome.profiling.prediction import Gain
from velodrome.timing.figures import duration, percent

Advice = dict[str, Any]

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


def make_advice(change: str, override: str = "", gain: Gain | None = None) -> Advice:
    """One change. Without an override it is one to the code, or to somebody else's server."""
    return {
        "change": change,
        "override": override,
        "predicted_rollouts_per_s": None if gain is None else gain.rollouts_per_s,
        "gain": None if gain is None else gain.gain,
    }


def ms(seconds: float) -> str:
    """A time."""
    return duration(1e3 * seconds)


def share(value: float) -> str:
    """A percentage, at most 100."""
    return percent(min(value, 1.0))


def code(name: str) -> str:
    """What a stage is called in a sentence."""
    return f"the tool {name.removeprefix('tool:')}" if name.startswith("tool:") else name


def longest_part(observed: Observed) -> str:
    """The part that a rollout spends most of its time in, of those that can be changed."""
    return max(_DOING, key=lambda name: observed.parts[name])


def took(observed: Observed) -> str:
    """How long one attempt took. Failed ones take slots as well, but the tree is of kept rollouts alone."""
    if observed.kept == observed.attempts:
        return f"a rollout took {ms(observed.total_s)}"
    failed = f"{observed.attempts - observed.kept:,} of {observed.attempts:,} failed"
    return f"an attempt, kept or failed, took {ms(observed.total_s)} ({failed})"


def time_spent(observed: Observed) -> str:
    """Where a rollout's time goes."""
    parts = {name: observed.parts[name] for name in _DOING}
    first, second = sorted(parts, key=lambda name: parts[name], reverse=True)[:2]
    text = f"{took(observed)}, {ms(parts[first])} of it {_DOING[first]}"
    if parts[second] >= _BOTH * observed.total_s > 0:
        text += f" and {ms(parts[second])} {_DOING[second]}"
    return text


def slots_in_use(observed: Observed) -> str:
    """How many of the slots were in use; of a limit that changed, of how many there were on average."""
    slots = f"{observed.limit}" if observed.steady else f"{observed.mean_limit:.1f}"
    return f"{min(observed.slots_used, observed.mean_limit):.1f} of {slots} slots were in use"
