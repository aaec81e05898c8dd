"""One run as the rules of the verdict look at it, what a rule says, and the words for its numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

from velodrome.machine import cores
from velodrome.profiling.config_blocks import UNKNOWN, Block, find_blocks, named_blocks
from velodrome.profiling.observed import Observed
from velodrome.profiling.prediction import Gain, Prediction
from velodrome.profiling.stages import CONNECTION, HERE, SETTINGS, SeenLimiter
from velodrome.timing.figures import duration

Json = dict[str, Any]

HELPS = 1.05  # times as many: less is nothing
MOST_TIMES = 2  # as much load as was seen
BUSY = 0.75  # of an interpreter
IDLE = 0.6  # of the slots
LATER = "+defer_verification=true"
NOT_KNOWN = "What that gives is not known"
_PER_MINUTE = "_per_minute"  # the end of names of rates, which are limits per minute and not at once
_QUEUED = 0.05  # of a rollout's time, in a limiter's queue
_WAITED = 0.2  # of a rollout's waits for others: what it waits for has to bear a higher load
_MODEL_LONG = 0.4  # of a rollout's time
_BOTH = 0.3  # of a rollout's time: a second part that long is named as well
_DEFAULT_PLACES = {"threads": 32, "judge": 16}
_LOCAL_OWN_S = 0.001  # a model in the collector's process uses CPU that is not the event loop's
_DOING = {
    "queue": "waiting for a place",
    "connection": "waiting for a connection",
    "session": "opening and closing its session",
    "model": "waiting for the model",
    "backoff": "backing off",
    "tools": "in tools",
    "verify": "being verified",
}


def advise(change: str, override: str = "", gain: Gain | None = None) -> Json:
    """One change. Without an override it is a change of code, or of a server that is not ours."""
    predicted = {"predicted_rollouts_per_s": gain and gain.rollouts_per_s, "gain": gain and gain.gain}
    return {"change": change, "override": override, **predicted}


class Explanation(NamedTuple):
    """What bounds a run, why that is believed, and what to change. `part` is by default a rollout's longest."""

    bound: str
    what: str
    evidence: list[str]
    advice: Sequence[Json] = ()
    part: str | None = None
    remark: str = ""


Rule = Callable[["Case"], Explanation | None]  # None where it does not apply


class Use(NamedTuple):
    """What took most of the collector's interpreter: `kind` is read, write, own, held or cpu."""

    kind: str
    name: str
    seconds: float


class Case:
    """Everything that a rule looks at. `places` are those of each limiter, `cores` this machine's."""

    def __init__(self, observed: Observed, config: Json | None) -> None:
        self.observed = observed
        self.blocks = find_blocks(config, observed.agent)
        self.named = named_blocks(config)
        self.cores = cores()
        local = self.blocks.model.implementation == "local_model"
        own_s = min(observed.own_s, _LOCAL_OWN_S) if local else observed.own_s
        self.places = self._places()
        self.prediction = Prediction(observed, self.places, own_s)
        repeats = (config or {}).get("num_repeats", 1)
        known = self.blocks is not UNKNOWN and isinstance(repeats, int) and repeats > 0
        self.repeats = repeats if known else None

    def _places(self) -> dict[str, int]:
        """The places of each limiter: as its span says, as configured, else as many as were in use during a wait."""
        seen = self.observed
        limiters = {name: SeenLimiter(name, setting, part=name) for name, setting in SETTINGS.items()} | seen.limiters
        places = {}
        for name, limiter in limiters.items():
            size = limiter.places or self.limited_block(limiter).number(limiter.setting)
            used = seen.tried_per_s * seen.busy_s.get(name, 0.0)
            if self.blocks is not UNKNOWN:
                size = size or _DEFAULT_PLACES.get(name)
            if limiter.setting.endswith("_processes"):
                size = size or max(self.cores, ceil(used))
            if name == CONNECTION or seen.queues.get(name, 0.0) > _QUEUED * seen.total_s:
                places[name] = size or max(round(used), 1)
            elif size or name in _DEFAULT_PLACES:
                places[name] = max(size or _DEFAULT_PLACES[name], ceil(used))
        return places

    def limited_block(self, limiter: SeenLimiter) -> Block:
        """The block that has a limiter's setting."""
        own = self.blocks.model if limiter.part == "model" else self.blocks.environment
        return self.named.get(limiter.where) or own

    def block(self, name: str) -> Block:
        """The block of a server."""
        return self.named.get(name) or Block(name)

    def gain(self, **changes: Any) -> Gain:
        """What another capacity would give."""
        return self.prediction.gain(self.prediction.capacity._replace(**changes))

    @property
    def model_is_long(self) -> bool:
        """Whether rollouts wait for the model for much of their time."""
        return self.observed.parts["model"] >= _MODEL_LONG * self.observed.total_s

    @cached_property
    def uses(self) -> dict[tuple[str, str], float]:
        """Seconds per rollout on the collector's interpreter, which runs one thing at a time."""
        seen = self.observed
        uses: dict[tuple[str, str], float] = {("write", ""): seen.write_s, ("read", ""): seen.read_s}
        if seen.cpu_s is not None:
            uses["own", ""] = self.prediction.own_s
        uses |= {("held", name): seconds for (where, name), seconds in seen.held.items() if where == HERE}
        if not seen.cpu_is_parallel:
            uses |= {("cpu", name): seconds for (where, name), seconds in seen.cpu.items() if where == HERE}
        return uses

    @cached_property
    def interpreter(self) -> Use | None:
        """What took most of a busy interpreter; None if it had time."""
        (kind, name), most = max(self.uses.items(), key=lambda each: each[1])
        late = self.prediction.loaded and kind in ("held", "cpu") and (self.observed.lag_s or 0.0) > most
        return Use(kind, name, most) if self.busy >= BUSY or late else None

    @property
    def busy(self) -> float:
        """The share of the time in which an interpreter of the collector had something to do."""
        return sum(self.uses.values()) * self.observed.tried_per_s / self.observed.workers

    @cached_property
    def limiter(self) -> str | None:
        """The limiter that is waited for most while its places are in use."""
        seen = self.observed
        full = {
            name: seconds
            for name, seconds in self._queued(per_minute=False).items()
            if seen.tried_per_s * seen.busy_s[name] > IDLE * self.places[name]
        }
        if CONNECTION in full:  # what a call takes last: meanwhile it has its place in every other queue
            return CONNECTION
        return max(full, key=lambda each: full[each], default=None)

    @cached_property
    def rate(self) -> str | None:
        """The limit per minute that is waited for most."""
        waits = self._queued(per_minute=True)
        return max(waits, key=lambda each: waits[each], default=None)

    def _queued(self, *, per_minute: bool) -> dict[str, float]:
        """The limiters that are waited for long enough to matter, with how long."""
        seen = self.observed
        waits = {name: seconds for name, seconds in seen.queues.items() if name.endswith(_PER_MINUTE) == per_minute}
        return {name: seconds for name, seconds in waits.items() if seconds > _QUEUED * seen.total_s}

    def doubt(self, times: float, only: Set[str] | None = None) -> str:
        """Why the effect of `times` the load on these stages is not known; empty if it is known."""
        seen = self.observed
        worked_s = sum(seen.waits.values())
        for name, seconds in seen.waits.items():
            if seconds < _WAITED * worked_s or (only and name not in only):
                continue
            effect, what = seen.effect(name), "the model" if name == "model" else code(name)
            if name == "model" and seen.refusals.number and seen.refusals.follow_load is not False:
                return f"{NOT_KNOWN}: whether more calls at once would be answered with 429."
            if effect is not None and times > MOST_TIMES:
                return f"{NOT_KNOWN}: {what} was not asked more than {effect.at_once} at once."
            if effect is None or effect.growth is None:
                return f"{NOT_KNOWN}: the load on {what} did not vary."
            if effect.saturated is None and not effect.slows:
                return f"{NOT_KNOWN}: whether {what} gets slower with more at once."
            if effect.saturated is not False:
                return f"{NOT_KNOWN}: {what} got slower with more at once."
        return ""


def ms(seconds: float) -> str:
    """A time."""
    return duration(1e3 * seconds)


def code(name: str) -> str:
    """What a stage is called in a sentence."""
    return f"the tool {name.removeprefix('tool:')}" if name.startswith("tool:") else name


def longest_part(observed: Observed) -> str:
    """The part that a rollout spends most of its time in, except for the rest, which has no name."""
    return max(_DOING, key=lambda name: observed.parts[name])


def took(observed: Observed) -> str:
    """How long one attempt took. Failed ones take slots as well, but the tree is of kept rollouts alone."""
    if observed.kept == observed.attempts:
        return f"a rollout took {ms(observed.total_s)}"
    failed = f"{observed.attempts - observed.kept:,} of {observed.attempts:,} failed"
    return f"an attempt, kept or failed, took {ms(observed.total_s)} ({failed})"


def time_spent(observed: Observed) -> str:
    """Where a rollout's time goes."""
    first, second = sorted(_DOING, key=lambda name: observed.parts[name], reverse=True)[:2]
    text = f"{took(observed)}, {ms(observed.parts[first])} of it {_DOING[first]}"
    if observed.parts[second] >= _BOTH * observed.total_s > 0:
        text += f" and {ms(observed.parts[second])} {_DOING[second]}"
    return text


def slots_in_use(observed: Observed) -> str:
    """How many of the slots were in use; of a limit that changed, of how many there were on average."""
    slots = f"{observed.limit}" if observed.steady else f"{observed.mean_limit:.1f}"
    return f"{min(observed.slots_used, observed.mean_limit):.1f} of {slots} slots were in use"
