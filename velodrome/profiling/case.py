"""One run as the rules of the verdict see it, the explanation of a rule, and the wording of numbers."""

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

HELPS = 1.05  # times as many; a smaller gain is ignored
MOST_TIMES = 2  # times the observed load
BUSY = 0.75  # of an interpreter
IDLE = 0.6  # of the slots
LATER = "+defer_verification=true"
NOT_KNOWN = "What that gives is not known"
_PER_MINUTE = "_per_minute"  # the suffix of rates: limits per minute
_QUEUED = 0.05  # of a rollout's time, in a limiter's queue
_WAITED = 0.2  # of a rollout's waits: such a stage must bear the higher load
_MODEL_LONG = 0.4  # of a rollout's time
_BOTH = 0.3  # of a rollout's time: a second part this long is reported too
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
    """One change. Without an override it is a change of code, or of another program's server."""
    predicted = {"predicted_rollouts_per_s": gain and gain.rollouts_per_s, "gain": gain and gain.gain}
    return {"change": change, "override": override, **predicted}


class Explanation(NamedTuple):
    """What bounds a run, the evidence, and what to change. `part` is by default the longest of a rollout."""

    bound: str
    what: str
    evidence: list[str]
    advice: Sequence[Json] = ()
    part: str | None = None
    remark: str = ""


Rule = Callable[["Case"], Explanation | None]  # None where it does not apply


class Use(NamedTuple):
    """The largest use of the collector's interpreter: `kind` is read, write, own, held or cpu."""

    kind: str
    name: str
    seconds: float


class Case:
    """The data of all rules. `places` are the places of each limiter, `cores` those of this machine."""

    def __init__(self, observed: Observed, config: Json | None) -> None:
        self.observed = observed
        self.blocks = find_blocks(config, observed.agent)
        self.blocks_by_name = named_blocks(config)
        self.cores = cores()
        self._config = config or {}

    @cached_property
    def repeats(self) -> int | None:
        """The configured repeats; None if there is no configuration of this agent."""
        repeats = self._config.get("num_repeats", 1)
        return repeats if self.blocks is not UNKNOWN and isinstance(repeats, int) and repeats > 0 else None

    @cached_property
    def prediction(self) -> Prediction:
        own_s = self.observed.own_s
        if self.blocks.model.implementation == "local_model":
            own_s = min(own_s, _LOCAL_OWN_S)
        return Prediction(self.observed, self.places, own_s)

    @cached_property
    def places(self) -> dict[str, int]:
        """The places of each limiter: from its span, else from the configuration, else as many as were in use."""
        seen = self.observed
        limiters = {name: SeenLimiter(name, setting, part=name) for name, setting in SETTINGS.items()} | seen.limiters
        places = {}
        for name, limiter in limiters.items():
            size = limiter.places or self.limited_block(limiter).number(limiter.setting)
            in_use = seen.tried_per_s * seen.busy_s.get(name, 0.0)
            if self.blocks is not UNKNOWN:
                size = size or _DEFAULT_PLACES.get(name)
            if limiter.setting.endswith("_processes"):
                size = size or max(self.cores, ceil(in_use))
            if name == CONNECTION or seen.queues.get(name, 0.0) > _QUEUED * seen.total_s:
                places[name] = size or max(round(in_use), 1)
            elif size or name in _DEFAULT_PLACES:
                places[name] = max(size or _DEFAULT_PLACES[name], ceil(in_use))
        return places

    def limited_block(self, limiter: SeenLimiter) -> Block:
        """The block that has a limiter's setting."""
        own = self.blocks.model if limiter.part == "model" else self.blocks.environment
        return self.blocks_by_name.get(limiter.where) or own

    def block(self, name: str) -> Block:
        """The block of a server."""
        return self.blocks_by_name.get(name) or Block(name)

    def gain(self, **changes: Any) -> Gain:
        """The predicted gain of another capacity."""
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
        """The largest use of a busy interpreter; None if it was not busy."""
        (kind, name), largest = max(self.uses.items(), key=lambda each: each[1])
        delayed = self.prediction.loaded and kind in ("held", "cpu") and (self.observed.lag_s or 0.0) > largest
        return Use(kind, name, largest) if self.busy >= BUSY or delayed else None

    @property
    def busy(self) -> float:
        """The share of time in which an interpreter of the collector was busy."""
        return sum(self.uses.values()) * self.observed.tried_per_s / self.observed.workers

    @cached_property
    def limiter(self) -> str | None:
        """The limiter with the longest waits, of those whose places were in use."""
        seen = self.observed
        full = {
            name: seconds
            for name, seconds in self._queued(per_minute=False).items()
            if seen.tried_per_s * seen.busy_s[name] > IDLE * self.places[name]
        }
        if CONNECTION in full:  # a call takes it last, while it holds its other places
            return CONNECTION
        return max(full, key=lambda each: full[each], default=None)

    @cached_property
    def rate(self) -> str | None:
        """The limit per minute with the longest waits."""
        waits = self._queued(per_minute=True)
        return max(waits, key=lambda each: waits[each], default=None)

    def _queued(self, *, per_minute: bool) -> dict[str, float]:
        """The limiters whose waits are long enough to matter, with their seconds."""
        seen = self.observed
        waits = {name: seconds for name, seconds in seen.queues.items() if name.endswith(_PER_MINUTE) == per_minute}
        return {name: seconds for name, seconds in waits.items() if seconds > _QUEUED * seen.total_s}

    def doubt(self, times: float, only: Set[str] | None = None) -> str:
        """The reason why the effect of `times` the load on these stages is not known; empty if it is known."""
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
    """A time as text."""
    return duration(1e3 * seconds)


def code(name: str) -> str:
    """The name of a stage in a sentence."""
    return f"the tool {name.removeprefix('tool:')}" if name.startswith("tool:") else name


def longest_part(observed: Observed) -> str:
    """The longest part of a rollout, of those that have a name."""
    return max(_DOING, key=lambda name: observed.parts[name])


def took(observed: Observed) -> str:
    """How long one attempt took. Failed ones take slots as well, but the tree is of kept rollouts alone."""
    if observed.kept == observed.attempts:
        return f"a rollout took {ms(observed.total_s)}"
    failed = f"{observed.attempts - observed.kept:,} of {observed.attempts:,} failed"
    return f"an attempt, kept or failed, took {ms(observed.total_s)} ({failed})"


def time_spent(observed: Observed) -> str:
    """The longest part of a rollout, and the second if it is long too."""
    first, second = sorted(_DOING, key=lambda name: observed.parts[name], reverse=True)[:2]
    text = f"{took(observed)}, {ms(observed.parts[first])} of it {_DOING[first]}"
    if observed.parts[second] >= _BOTH * observed.total_s > 0:
        text += f" and {ms(observed.parts[second])} {_DOING[second]}"
    return text


def slots_in_use(observed: Observed) -> str:
    """How many slots were in use, of the limit or, if that changed, of its mean."""
    slots = f"{observed.limit}" if observed.steady else f"{observed.mean_limit:.1f}"
    return f"{min(observed.slots_used, observed.mean_limit):.1f} of {slots} slots were in use"
