"""An attempt taken apart: from the span tree in `meta.timing` to the stages that predictions add up.

A stage has what its span waited for, burned in a thread, and kept of the event loop, in which process, and whose place
it needed. Rows of an older format, which have no tree, are read from their parts.

A limiter is known by its span, `limit:<name>`, which is the wait for one of its places. A count of that span names the
setting and gives its value (`{"judge_max_concurrent": 16}`), so no limiter has to be listed here; `places` is the value
of one that no setting sets. Older rows have a span `queue` instead; the span around it says which limiter that was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from velodrome.profiling.sample import RecordedAttempt
from velodrome.records.mending import HOSTILE

Json = dict[str, Any]
Node = list[Any]  # [name, start in µs, length in µs, counts, children]

HERE = ""  # the collector's own process
CONNECTION = "connection"
THREADS = "threads"
LIMIT = "limit:"
# Limiters of components that ship: the settings, where nothing was waited for or an older row says `queue`.
SETTINGS = {
    "model": "max_concurrent",
    THREADS: "threads",
    "judge": "judge_max_concurrent",
    "library": "verify_processes",
}
_OWN = ("model", "judge", "library")  # spans that have the limiter of the same name; else a queue is for a thread
_MOST_DEPTH = 40
_MOST_STEPS = 2000
_LONGEST_S = 1e9
_S = 1e-6


class Stage(NamedTuple):
    """A part of a rollout. `limiter` names what it takes a place of, `where` the process whose interpreter it uses.

    It waits for others, burns CPU in a thread, and keeps the event loop; an interpreter does one thing at a time.
    """

    name: str
    wait_s: float = 0.0
    cpu_s: float = 0.0
    held_s: float = 0.0
    limiter: str | None = None
    where: str = HERE

    @property
    def seconds(self) -> float:
        """How long it takes alone."""
        return self.wait_s + self.cpu_s + self.held_s


class SeenLimiter(NamedTuple):
    """What lets only so many through. `setting` is what configures it, `places` how many it said it has."""

    name: str
    setting: str = ""
    places: int | None = None
    part: str = ""  # of a rollout, in which it is waited for
    where: str = HERE


@dataclass(slots=True)
class TimedStage:
    """One stage as it was recorded: `start` in seconds since 1970, after its waits for a place and a connection."""

    stage: Stage
    start: float
    queue_s: float = 0.0
    connection_s: float = 0.0
    tokens: float = 0.0
    calls: float = 1  # more where calls were folded into one span
    remote: bool = False  # answered over HTTP
    backoffs: tuple[tuple[float, float], ...] = ()  # from when to when

    @property
    def lasted_s(self) -> float:
        return self.stage.seconds

    @property
    def end(self) -> float:
        return self.start + self.lasted_s


class TimedAttempt:
    """One attempt: its steps in order, and what it says about the servers it used."""

    def __init__(self, attempt: RecordedAttempt) -> None:
        self.attempt = attempt
        self.steps: list[list[TimedStage]] = []
        self.connection_s = 0.0  # that it waited to reach its agent's server
        self.pids: dict[str, set[float]] = {}  # the processes of each server that answered
        self.shares: dict[str, list[float]] = {}  # of a core; only busy processes report it
        for place in _places(attempt.times.tree):
            name, counts = place.node[0], place.node[3] or {}
            if name[0] == "@":
                folded, pid, busy_pct = (_count(counts, each) for each in ("folded", "pid", "busy_pct"))
                self.pids.setdefault(name[1:], set()).update([pid] if pid and folded <= 1 else [])
                self.shares.setdefault(name[1:], []).extend([busy_pct / 100 / max(folded, 1)] if busy_pct else [])
            elif name == CONNECTION and not place.part and counts:
                self.connection_s += place.node[2] * _S

    @property
    def stages(self) -> Iterator[TimedStage]:
        """Every stage."""
        for step in self.steps:
            yield from step


class _Place(NamedTuple):
    """A node of a tree, the outermost and the innermost span around it, and its process."""

    node: Node
    part: str
    span: str
    where: str


def _places(
    nodes: list[Node],
    part: str = "",
    span: str = "",
    where: str = HERE,
    depth: int = 0,
    closed: Callable[[str], bool] = lambda name: False,
) -> Iterator[_Place]:
    """Every node, parents first; nothing inside those that are `closed`. `@server` is a process, not a span."""
    for node in nodes:
        yield _Place(node, part, span, where)
        name = node[0]
        if node[4] and depth < _MOST_DEPTH and not closed(name):
            if name[0] == "@":
                yield from _places(node[4], part, span, name[1:], depth + 1, closed)
            else:
                yield from _places(node[4], part or name, name, where, depth + 1, closed)


class AttemptReader:
    """Takes attempts apart. `limiters` are those that were waited for, `limited` the spans that wait for each."""

    def __init__(self, attempts: Sequence[RecordedAttempt]) -> None:
        self.limiters: dict[str, SeenLimiter] = {}
        self.limited: dict[str, str] = {}
        self.inside: dict[str, str] = {}  # the part of a rollout that each of these spans belongs to
        for attempt in attempts:
            try:
                for place in _places(attempt.times.tree):
                    if place.node[0] == CONNECTION:
                        setting, places = _setting(place.node[3])
                        if setting:
                            setting = f"global_aiohttp_connector_{setting}"
                            self.limiters.setdefault(CONNECTION, SeenLimiter(CONNECTION, setting, places))
                    elif place.span and _is_queue(place.node[0]):
                        self._add_limiter(place)
            except HOSTILE:
                continue
        for name in _OWN:
            self.limited.setdefault(name, name)

    def _add_limiter(self, place: _Place) -> None:
        wait, part, span, where = place
        if wait[0] == "queue":
            name = span if span in _OWN else THREADS
            setting, places = SETTINGS[name], None
        else:
            name = wait[0][len(LIMIT) :]
            setting, places = _setting(wait[3])
        self.limiters.setdefault(name, SeenLimiter(name, setting, places, part, where))
        self.limited.setdefault(span, name)
        self.inside.setdefault(span, part)

    def take(self, attempts: Sequence[RecordedAttempt]) -> list[TimedAttempt]:
        """Every attempt whose timing can be read."""
        taken = []
        for each in attempts:
            with suppress(*HOSTILE):
                taken.append(self._take(each))
        return taken

    def _take(self, attempt: RecordedAttempt) -> TimedAttempt:
        result = TimedAttempt(attempt)
        tree = attempt.times.tree
        result.steps = list(self._steps(tree, attempt.start)) if tree else _from_parts(attempt)
        longest = [max([each.lasted_s + each.queue_s + each.connection_s for each in step]) for step in result.steps]
        worked_s = sum(longest)
        if not (0 <= worked_s < _LONGEST_S and len(longest) <= _MOST_STEPS):
            raise ValueError(worked_s)
        rest = attempt.total_s - worked_s - result.connection_s
        if rest > 0:
            result.steps.append([TimedStage(Stage("other", rest), attempt.start)])
        elif worked_s > 1.05 * attempt.total_s > 0:  # an agent that does several things at once: as long as it took
            share = attempt.total_s / worked_s
            for each in result.stages:
                each.stage = each.stage._replace(wait_s=each.stage.wait_s * share)
        return result

    def _steps(self, tree: list[Node], origin: float) -> Iterator[list[TimedStage]]:
        nodes = list(_unwrapped(tree, HERE, 0))
        if len(nodes) > 1:
            nodes.sort(key=lambda each: float(each[0][1]))
        for node, where in nodes:
            if node[0] == "tools" and node[4]:
                step = [
                    each for tool, inner in _unwrapped(node[4], where, 0) for each in self._stages(tool, inner, origin)
                ]
                if step:
                    yield step
            else:
                for each in self._stages(node, where, origin):
                    yield [each]

    def _stages(self, node: Node, where: str, origin: float) -> list[TimedStage]:
        """The stage of one node, and after it those inside it that have a limiter of their own."""
        name, start_us, length_us, counts, below = node
        queue_us = connection_us = 0.0
        used, apart, backoffs = [counts or {}], [], []
        for inside in _places(below, where=where, closed=self._stands_apart) if below else ():
            each, took_us = inside.node[0], max(inside.node[2], 0.0)
            if _is_queue(each):
                queue_us += took_us
            elif each == CONNECTION:  # without a limit of ours the server let it wait
                connection_us += took_us if inside.node[3] else 0.0
            elif each == "backoff":
                begun = origin + inside.node[1] * _S
                backoffs.append((begun, begun + took_us * _S))
            elif self._stands_apart(each):
                apart.append(inside)
                length_us -= inside.node[2]
            else:
                where = each[1:] if each[0] == "@" else where
                used.append(inside.node[3] or {})
        cpu_us, held_us, tokens = (
            sum([max(each.get(count, 0.0), 0.0) for each in used]) for count in ("cpu_us", "held_us", "tokens")
        )
        length_us = max(length_us - queue_us - connection_us, 0.0)
        busy_us = min(cpu_us + held_us, length_us)
        held_us = min(held_us, busy_us)
        limiter = self.limited.get(name)
        stage = Stage(str(name), (length_us - busy_us) * _S, (busy_us - held_us) * _S, held_us * _S, limiter, where)
        stages = [
            TimedStage(
                stage,
                origin + (start_us + queue_us + connection_us) * _S,
                queue_us * _S,
                connection_us * _S,
                tokens,
                max(_count(counts, "folded"), 1) if counts else 1,
                remote=any("first_byte_us" in each for each in used),
                backoffs=tuple(backoffs),
            )
        ]
        for inside in apart:
            stages += self._stages(inside.node, inside.where, origin)
        return stages

    def _stands_apart(self, name: str) -> bool:
        """Whether a span inside another is a wait, or has a limiter and so a stage of its own."""
        return _is_queue(name) or name in (CONNECTION, "backoff") or (name in self.limited and name != "model")


def _unwrapped(nodes: list[Node], where: str, depth: int) -> Iterator[tuple[Node, str]]:
    """The nodes, with those of another process in place of the node that stands for it."""
    for node in nodes:
        name = node[0]
        if name[0] == "@" and depth < _MOST_DEPTH:
            yield from _unwrapped(node[4], name[1:], depth + 1)
        elif name not in (CONNECTION, "backoff") and not _is_queue(name):
            yield node, where


def _is_queue(name: str) -> bool:
    """Whether a span is a wait for a place of a limiter."""
    return name == "queue" or name.startswith(LIMIT)


def _setting(counts: Mapping[str, Any] | None) -> tuple[str, int | None]:
    """The setting that a wait names in its counts, and its value."""
    times = max(_count(counts or {}, "folded"), 1)
    for name in counts or ():
        value = _count(counts or {}, name) / times
        if name != "folded" and value >= 1:
            return "" if name == "places" else name, round(value)
    return "", None


def _count(counts: Mapping[str, Any], name: str) -> float:
    """A count; 0 if it is not a number."""
    value = counts.get(name, 0.0)
    return value if isinstance(value, int | float) and 0 <= value < _LONGEST_S else 0.0


def _from_parts(attempt: RecordedAttempt) -> list[list[TimedStage]]:
    queue, _, session, model, backoff, tools, verify, _ = attempt.times.parts
    calls = max(int(attempt.times.model_calls), 1)
    stages = [("session", session), *[("model", (model + backoff) / calls)] * min(calls, 50)]
    stages += [("tools", tools), ("verify", verify)]
    at, steps = attempt.start, []
    for name, seconds in stages:
        if seconds > 0:
            waited, queue = (queue, 0.0) if name == "model" else (0.0, queue)
            steps.append([TimedStage(Stage(name, seconds), at + waited, waited)])
            at += waited + seconds
    return steps
