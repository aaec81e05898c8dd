"""One run as the rules of the verdict look at it, and what a rule says."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from functools import cached_property
from typing import Any, NamedTuple

from velodrome.profiling.attempts import CONNECTION, HERE
from velodrome.profiling.config_blocks import UNKNOWN, Block, find_blocks, named_blocks
from velodrome.profiling.observed import Observed
from velodrome.profiling.phrases import Advice, code
from velodrome.profiling.prediction import Prediction

Json = dict[str, Any]
HELPS = 1.05  # times as many: less is nothing
PER_MINUTE = "_per_minute"  # how limiters are called that let so many through in a minute, not at once
QUEUED = 0.05  # of a rollout's time, in a limiter's queue
LATER = "+defer_verification=true"
DEFERRED = ("leave verification for later and score the file with velo verify", LATER)
BUSY = 0.75  # of an interpreter
IDLE = 0.6  # of the slots
MOST_TIMES = 2  # as much load as was seen
_WAITED = 0.2  # of a rollout's waits for others: what it waits for has to bear a higher load
NOT_KNOWN = "What that gives is not known"


class Explanation(NamedTuple):
    """What bounds a run, why that is believed, and what to change. `part` is by default a rollout's longest."""

    bound: str
    what: str
    evidence: list[str]
    advice: Sequence[Advice] = ()
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

    def __init__(self, observed: Observed, prediction: Prediction, config: Json | None, cores: int) -> None:
        self.observed = observed
        self.prediction = prediction
        self.blocks = find_blocks(config, observed.agent)
        self.named = named_blocks(config)
        self.places = prediction.capacity.places
        self.cores = cores
        repeats = (config or {}).get("num_repeats", 1)
        known = self.blocks is not UNKNOWN and isinstance(repeats, int) and repeats > 0
        self.repeats = repeats if known else None

    def block(self, name: str) -> Block:
        """The block of a server."""
        return self.named.get(name) or Block(name)

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
        queued = {
            name: seconds
            for name, seconds in seen.queues.items()
            if seconds > QUEUED * seen.total_s
            and not name.endswith(PER_MINUTE)
            and seen.tried_per_s * seen.busy_s[name] > IDLE * self.places[name]
        }
        if CONNECTION in queued:  # what a call takes last: meanwhile it has its place in every other queue
            return CONNECTION
        return max(queued, key=lambda each: queued[each], default=None)

    @cached_property
    def rate(self) -> str | None:
        """The limit per minute that is waited for most."""
        seen = self.observed
        waits = {name: s for name, s in seen.queues.items() if name.endswith(PER_MINUTE) and s > QUEUED * seen.total_s}
        return max(waits, key=lambda each: waits[each], default=None)

    def doubt(self, times: float, only: Set[str] | None = None) -> str:
        """Why it is not known what so many times the load on these stages would do; empty if it is known."""
        seen = self.observed
        worked_s = sum(seen.waits.values())
        for name, seconds in seen.waits.items():
            if name == "other" or seconds < _WAITED * worked_s or (only and name not in only):
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
