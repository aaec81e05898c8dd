"""The stages of one attempt, from the span tree in `meta.timing`: the waits, CPU and places of each.

A limiter is known by the span of its waits, `limit:<name>`. A count of that span names the setting and has its value
(`{"judge_max_concurrent": 16}`), so no limiter has to be listed here; a limit without a setting is counted as
`places`. Older rows have a span `queue` instead, whose parent identifies the limiter, or no tree at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from velodrome.profiling.sample import RecordedAttempt
from velodrome.records.mending import HOSTILE
from velodrome.records.row_times import PARTS

Json = dict[str, Any]
Node = list[Any]  # [name, start in µs, length in µs, counts, children]

HERE = ""  # the collector's own process
CONNECTION = "connection"
THREADS = "threads"
LIMIT = "limit:"
# The settings of limiters that ship, for rows in which nothing waited, and for older rows.
SETTINGS = {
    "model": "max_concurrent",
    THREADS: "threads",
    "judge": "judge_max_concurrent",
    "library": "verify_processes",
}
_OWN = ("model", "judge", "library")  # spans whose limiter has their name
_MOST = 1e9  # seconds, and anything that is counted
_S = 1e-6


@dataclass(slots=True)
class Stage:
    """A part of a rollout: a model call, a tool, `verify`, or something inside one that has a limiter.

    `start` is after its waits for a place and a connection, and `seconds` is without them.
    """

    name: str
    start: float  # seconds since 1970
    seconds: float
    where: str = HERE  # the process whose interpreter it uses
    cpu_s: float = 0.0  # computed in a thread
    held_s: float = 0.0  # kept the event loop
    queue_s: float = 0.0
    connection_s: float = 0.0
    tokens: float = 0.0
    calls: float = 1  # more where calls were folded into one span
    remote: bool = False  # answered over HTTP
    backoffs: tuple[tuple[float, float], ...] = ()  # from when to when

    @property
    def wait_s(self) -> float:
        """The seconds of waiting for others."""
        return self.seconds - self.cpu_s - self.held_s

    @property
    def end(self) -> float:
        return self.start + self.seconds

    def count(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of a span of this stage."""
        self.cpu_s += _count(counts, "cpu_us") * _S
        self.held_s += _count(counts, "held_us") * _S
        self.tokens += _count(counts, "tokens")
        self.remote = self.remote or "first_byte_us" in counts

    def clip(self) -> None:
        """Limit the computing time to the length of the stage."""
        self.seconds = max(self.seconds, 0.0)
        busy_s = min(self.cpu_s + self.held_s, self.seconds)
        self.held_s = min(self.held_s, busy_s)
        self.cpu_s = busy_s - self.held_s


class SeenLimiter(NamedTuple):
    """A limit on how many run at once, or per minute. `setting` configures it; `places` is the limit in its span."""

    name: str
    setting: str = ""
    places: int | None = None
    part: str = ""  # of a rollout, in which it is waited for
    where: str = HERE


class Limiters:
    """The limiters that attempts waited for: `seen` by name, `of` by the span that waits."""

    def __init__(self, attempts: Sequence[RecordedAttempt]) -> None:
        self.seen: dict[str, SeenLimiter] = {}
        self.of: dict[str, str] = {}
        for attempt in attempts:
            with suppress(*HOSTILE):
                self._find(attempt.times.tree)
        for name in _OWN:
            self.of.setdefault(name, name)

    def _find(self, nodes: list[Node], part: str = "", span: str = "", where: str = HERE) -> None:
        for name, _, _, counts, below in nodes:
            if name == CONNECTION:
                setting, places = _setting(counts or {})
                if setting:
                    setting = f"global_aiohttp_connector_{setting}"
                    self.seen.setdefault(CONNECTION, SeenLimiter(CONNECTION, setting, places))
            elif span and is_queue(name):
                self._add(name, counts or {}, part, span, where)
            elif below and name[0] == "@":
                self._find(below, part, span, name[1:])
            elif below:
                self._find(below, part or name, name, where)

    def _add(self, wait: str, counts: Mapping[str, Any], part: str, span: str, where: str) -> None:
        if wait == "queue":
            name = span if span in _OWN else THREADS
            setting, places = SETTINGS[name], None
        else:
            name = wait.removeprefix(LIMIT)
            setting, places = _setting(counts)
        self.seen.setdefault(name, SeenLimiter(name, setting, places, part, where))
        self.of.setdefault(span, name)


class TimedAttempt:
    """One attempt: its stages, and the load of the servers it used. An invalid tree raises HOSTILE."""

    def __init__(self, attempt: RecordedAttempt, limiters: Limiters) -> None:
        self.attempt = attempt
        self.stages: list[Stage] = []
        self.connection_s = 0.0  # waiting for a connection to its agent's server
        self.pids: dict[str, set[float]] = {}  # the processes of each server that answered
        self.shares: dict[str, list[float]] = {}  # of a core, that a server's process used; only busy ones report it
        self._limited = limiters.of
        if attempt.times.tree:
            self._read(attempt.times.tree, HERE, None)
        else:
            self.stages = list(_from_parts(attempt))
        for stage in self.stages:
            stage.clip()
        if not sum(stage.seconds for stage in self.stages) < _MOST:
            raise ValueError("too long")

    def _read(self, nodes: list[Node], where: str, stage: Stage | None) -> None:
        """Add stages for these spans, or add the spans to their stage."""
        for name, start_us, length_us, counts, below in nodes:
            counts, seconds = counts or {}, max(length_us, 0) * _S
            start = self.attempt.start + start_us * _S
            if name[0] == "@":
                self._add_server(name[1:], counts)
                if stage is not None:
                    stage.where = name[1:]
                    stage.count(counts)
                self._read(below, name[1:], stage)
            elif is_queue(name) or name in (CONNECTION, "backoff"):
                self._add_wait(name, start, seconds, stage, limited=bool(counts))
            elif name == "tools" and below:
                self._read(below, where, None)
            elif stage is None or (name in self._limited and name != "model"):
                new_stage = Stage(name, start, seconds, where, calls=max(_count(counts, "folded"), 1))
                if stage is not None:
                    stage.seconds -= seconds
                new_stage.count(counts)
                self.stages.append(new_stage)
                self._read(below, where, new_stage)
            else:
                stage.count(counts)
                self._read(below, where, stage)

    def _add_wait(self, name: str, start: float, seconds: float, stage: Stage | None, *, limited: bool) -> None:
        if stage is None:
            self.connection_s += seconds if name == CONNECTION and limited else 0.0
        elif name == "backoff":
            stage.backoffs = (*stage.backoffs, (start, start + seconds))
        elif limited or name != CONNECTION:  # without a limit of the collector, the server caused the wait
            if name == CONNECTION:
                stage.connection_s += seconds
            else:
                stage.queue_s += seconds
            stage.start += seconds
            stage.seconds -= seconds

    def _add_server(self, name: str, counts: Mapping[str, Any]) -> None:
        folded, pid, busy_pct = (_count(counts, each) for each in ("folded", "pid", "busy_pct"))
        self.pids.setdefault(name, set()).update([pid] if pid and folded <= 1 else [])
        self.shares.setdefault(name, []).extend([busy_pct / 100 / max(folded, 1)] if busy_pct else [])


def read_attempts(attempts: Sequence[RecordedAttempt], limiters: Limiters) -> dict[int, TimedAttempt]:
    """The attempts with valid timing, by their `id`."""
    result = {}
    for each in attempts:
        with suppress(*HOSTILE):
            result[id(each)] = TimedAttempt(each, limiters)
    return result


def is_queue(name: str) -> bool:
    """Whether a span is a wait for a place of a limiter."""
    return name == "queue" or name.startswith(LIMIT)


def _setting(counts: Mapping[str, Any]) -> tuple[str, int | None]:
    """The setting in the counts of a wait, and its value."""
    times = max(_count(counts, "folded"), 1)
    for name in counts:
        value = _count(counts, name) / times
        if name != "folded" and value >= 1:
            return "" if name == "places" else name, round(value)
    return "", None


def _count(counts: Mapping[str, Any], name: str) -> float:
    """A count; 0 if it is not a number."""
    value = counts.get(name, 0.0)
    return value if isinstance(value, int | float) and 0 <= value < _MOST else 0.0


def _from_parts(attempt: RecordedAttempt) -> Iterator[Stage]:
    """The stages of a row without a tree; all model calls are one stage."""
    parts, at = dict(zip(PARTS, attempt.times.parts, strict=True)), attempt.start + attempt.times.parts[0]
    calls = max(attempt.times.model_calls, 1)
    for name, seconds in [(each, parts[each]) for each in ("session", "model", "tools", "verify")]:
        seconds += parts["backoff"] if name == "model" else 0.0
        if seconds > 0:
            yield Stage(name, at, seconds, calls=calls if name == "model" else 1)
            at += seconds
