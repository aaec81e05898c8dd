"""Recorded rollouts as the steps that a replay runs, and the numbers that the rules of the verdict look at.

A tree is read once: what each span waited for, what it burned in a thread, how long it kept the event loop, and in
which process. Rows of an older format, which have no tree, are read from their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from velodrome.profiling.replay import HERE, Stage, Step
from velodrome.profiling.sample import Recorded
from velodrome.records.facts import HOSTILE, WAITS, timed_parts

Json = dict[str, Any]

_APART = ("judge", "library")  # spans inside verify with a limiter of their own
_MOST_DEPTH = 40
_MOST_STEPS = 2000
_LONGEST_S = 1e9
_S = 1e-6


Limit = tuple[str, int]  # of connections: its name, and how many it allows


@dataclass(slots=True)
class Span:
    """One stage as it was recorded: `start` in seconds since 1970, after its wait for a place and a connection."""

    stage: Stage
    start: float
    queue_s: float
    backoff_s: float
    tokens: float
    calls: float = 1  # more where calls were folded into one span
    connection_s: float = 0.0
    limit: Limit | None = None  # of the connections it waited for
    remote: bool = False  # whether it was answered over HTTP

    @property
    def end(self) -> float:
        """When it was over."""
        return self.start + self.stage.wait_s + self.stage.cpu_s + self.stage.held_s


@dataclass(slots=True)
class Served:
    """What a rollout tells of one server: its processes that answered, and how busy they said they were."""

    pids: set[float] = field(default_factory=set)
    shares: list[float] = field(default_factory=list)  # of a core; only those that are busy say so


@dataclass(slots=True)
class Rollout:
    """One attempt, taken apart: its steps in order."""

    recorded: Recorded
    steps: list[list[Span]]
    servers: dict[str, Served] = field(default_factory=dict)
    connection_s: float = 0.0  # that it waited to reach its agent's server
    limit: Limit | None = None

    @property
    def spans(self) -> Iterator[Span]:
        """Every stage."""
        for step in self.steps:
            yield from step


@dataclass(slots=True)
class _Use:
    """What the spans below one used, as far as they have no stage of their own."""

    queue_us: float = 0.0
    connection_us: float = 0.0
    limit: Limit | None = None
    remote: bool = False
    backoff_us: float = 0.0
    cpu_us: float = 0.0
    held_us: float = 0.0
    tokens: float = 0.0
    where: str = HERE
    apart: list[tuple[list[Any], str]] | None = None


def taken_apart(recorded: Sequence[Recorded]) -> list[Rollout]:
    """Every attempt whose timing can be read."""
    found = []
    for each in recorded:
        try:
            found.append(_rollout(each))
        except HOSTILE:
            continue
    return found


def _rollout(recorded: Recorded) -> Rollout:
    tree = recorded.timing.get("tree")
    steps = list(_steps(tree, recorded.start)) if tree else _from_parts(recorded)
    reaching = _Use()
    if tree:
        _add_use(["", 0, 0, {}, [node for node in tree if node[0] == "connection"]], reaching, 0)
    taken = sum(max(span.end - span.start + span.queue_s + span.connection_s for span in step) for step in steps)
    if not (0 <= taken < _LONGEST_S and len(steps) <= _MOST_STEPS):
        raise ValueError(taken)
    rest = recorded.total_s - taken - reaching.connection_us * _S
    if rest > 0:
        steps.append([Span(Stage("other", rest), recorded.start, 0.0, 0.0, 0.0)])
    elif taken > 1.05 * recorded.total_s > 0:  # an agent that does several things at once: as long as it was in all
        share = recorded.total_s / taken
        for span in (span for step in steps for span in step):
            span.stage = span.stage._replace(wait_s=span.stage.wait_s * share)
    found = Rollout(recorded, steps, connection_s=reaching.connection_us * _S, limit=reaching.limit)
    if tree:
        _add_servers(tree, found.servers, 0)
    return found


def _add_servers(nodes: list[Any], found: dict[str, Served], depth: int) -> None:
    for name, _, _, counts, below in nodes:
        if name[0] == "@":
            server = found.setdefault(name[1:], Served())
            folded, pid, busy_pct = (_count(counts or {}, each) for each in ("folded", "pid", "busy_pct"))
            if pid and folded <= 1:
                server.pids.add(pid)
            if busy_pct:
                server.shares.append(busy_pct / 100 / max(folded, 1))
        if below and depth < _MOST_DEPTH:
            _add_servers(below, found, depth + 1)


def _limit(counts: Mapping[str, Any] | None) -> Limit | None:
    for name in ("limit_per_host", "limit"):
        value = _count(counts or {}, name) / max(_count(counts or {}, "folded"), 1)
        if value >= 1:
            return name, round(value)
    return None


def _count(counts: Mapping[str, Any], name: str) -> float:
    """A count, which may be anything: what is no number is none."""
    value = counts.get(name, 0.0)
    return value if isinstance(value, int | float) and 0 <= value < _LONGEST_S else 0.0


def _steps(tree: list[Any], origin: float) -> Iterator[list[Span]]:
    for node, where in sorted(_unwrapped(tree, HERE, 0), key=lambda each: float(each[0][1])):
        if node[0] == "tools" and node[4]:
            step = [span for tool, inner in _unwrapped(node[4], where, 0) for span in _spans(tool, inner, origin)]
            if step:
                yield step
        else:
            for span in _spans(node, where, origin):
                yield [span]


def _unwrapped(nodes: list[Any], where: str, depth: int) -> Iterator[tuple[list[Any], str]]:
    """The nodes, with those of another process in place of the node that stands for it."""
    for node in nodes:
        name = node[0]
        if name[0] == "@" and depth < _MOST_DEPTH:
            yield from _unwrapped(node[4], name[1:], depth + 1)
        elif name not in WAITS:
            yield node, where


def _spans(node: list[Any], where: str, origin: float) -> Iterator[Span]:
    """The stage of one node, and after it those that stand apart."""
    use = _Use(where=where, apart=[])
    _add_use(node, use, 0)
    apart = use.apart or []
    waited_us = use.queue_us + use.connection_us
    length_us = node[2] - sum(each[2] for each, _ in apart) - waited_us
    used_us = min(use.cpu_us + use.held_us, max(length_us, 0.0))
    held_us = min(use.held_us, used_us)
    stage = Stage(
        name=str(node[0]),
        wait_s=max(length_us - used_us, 0.0) * _S,
        cpu_s=(used_us - held_us) * _S,
        held_s=held_us * _S,
        where=use.where,
    )
    start = origin + (node[1] + waited_us) * _S
    calls = max(_count(node[3] or {}, "folded"), 1)
    yield Span(
        stage,
        start,
        use.queue_us * _S,
        use.backoff_us * _S,
        use.tokens,
        calls,
        use.connection_us * _S,
        use.limit,
        use.remote,
    )
    for each, inner in apart:
        yield from _spans(each, inner, origin)


def _add_use(node: list[Any], use: _Use, depth: int) -> None:
    counts = node[3]
    if counts:
        use.cpu_us += max(counts.get("cpu_us", 0.0), 0.0)
        use.held_us += max(counts.get("held_us", 0.0), 0.0)
        use.tokens += max(counts.get("tokens", 0.0), 0.0)
        use.remote = use.remote or "first_byte_us" in counts
    if depth > _MOST_DEPTH:
        return
    for below in node[4]:
        name = below[0]
        if name == "queue":
            use.queue_us += max(below[2], 0.0)
        elif name == "connection":
            use.connection_us += max(below[2], 0.0)
            use.limit = _limit(below[3])
        elif name == "backoff":
            use.backoff_us += max(below[2], 0.0)
        elif name in _APART and use.apart is not None:
            use.apart.append((below, use.where))
        else:
            if name[0] == "@":
                use.where = name[1:]
            _add_use(below, use, depth + 1)


def _from_parts(recorded: Recorded) -> list[list[Span]]:
    _, (queue, _, session, model, backoff, tools, verify, _) = timed_parts(recorded.timing)
    calls = max(int(recorded.timing.get("model_calls", 0)), 1)
    stages = [("session", session), *[("model", (model + backoff) / calls)] * min(calls, 50)]
    stages += [("tools", tools), ("verify", verify)]
    at, steps = recorded.start, []
    for name, seconds in stages:
        if seconds > 0:
            waited, queue = (queue, 0.0) if name == "model" else (0.0, queue)
            steps.append([Span(Stage(name, seconds), at + waited, waited, backoff if waited else 0.0, 0.0)])
            at += waited + seconds
    return steps


Change = Callable[[Stage], Stage | None]  # None: it is left out


def as_steps(
    rollouts: Sequence[Rollout],
    own_s: float,
    read_s: float,
    write_s: float,
    limiters: Mapping[str, str],
    change: Change = lambda stage: stage,
) -> list[list[Step]]:
    """For the replay: each stage changed and given its limiter, and the collector's own CPU spread over them."""
    reading = change(Stage("read", held_s=read_s)) if read_s else None
    writing = change(Stage("write", held_s=write_s)) if write_s else None
    found: list[list[Step]] = []
    for rollout in rollouts:
        kept = [[new for span in step if (new := change(span.stage)) is not None] for step in rollout.steps]
        each_s = own_s / max(sum(map(len, kept)), 1)
        steps: list[Step] = [tuple(_loaded(stage, each_s, limiters) for stage in step) for step in kept if step]
        if all(stage.where != HERE for step in steps for stage in step):
            steps.append((Stage("own", held_s=own_s),))
        if reading is not None:
            steps.insert(0, (reading,))
        if writing is not None:
            steps.append((writing,))
        found.append(steps)
    return found


def _loaded(stage: Stage, own_s: float, limiters: Mapping[str, str]) -> Stage:
    """What the collector does for a stage in another process is not that process's work, and it waits meanwhile."""
    limiter = stage.limiter or limiters.get(stage.name)
    if stage.where != HERE:
        return stage._replace(limiter=limiter)
    wait_s = max(stage.wait_s - own_s, 0.0)
    return Stage(stage.name, wait_s, stage.cpu_s, stage.held_s + own_s, limiter, HERE)
