"""Rows as a run would have written them that is limited by one thing on purpose, and the verdict on them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from velodrome.collector.account import account
from velodrome.profiling.profile import Profile
from velodrome.records.facts import RowFacts
from velodrome.timing.spans import from_node

Json = dict[str, Any]
Node = list[Any]
Planted = tuple[float, list[Node]]  # how long a rollout takes, and its tree
Made = Callable[[float, int], Planted]  # given when it begins and how many run then

START = 1_700_000_000.0


def config(
    model: Json | None = None,
    environment: Json | None = None,
    implementation: str = "math",
    model_implementation: str = "openai_model",
    **more: Any,
) -> Json:
    agent = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "math"},
    }
    settings = {"openai_base_url": "http://127.0.0.1:8000/v1", **(model or {})}
    return {
        "policy_model": {"responses_api_models": {model_implementation: settings}},
        "math": {"resources_servers": {implementation: environment or {}}},
        "agent": {"responses_api_agents": {"simple_agent": agent}},
        "limit": 7,
        **more,
    }


def node(name: str, start_s: float, length_s: float, below: list[Node] | None = None, **counts: Any) -> Node:
    return [name, round(start_s * 1e6), round(length_s * 1e6), counts, below or []]


def run(made: Made, count: int = 200, slots: int = 16, stagger_s: float = 1e-4, **timing: Any) -> list[Json]:
    """The rows of a run: a free slot takes the next rollout. They start one after the other."""
    free = [number * stagger_s for number in range(slots)]
    ends: list[float] = []
    rows = []
    for number in range(count):
        start = heapq.heappop(free)
        total, tree = made(start, 1 + sum(end > start for end in ends[-4 * slots :]))
        ends.append(start + total)
        heapq.heappush(free, start + total + timing.get("write_s", 0.0))
        in_flight = min(slots, count - number)
        rows.append((start + total, row(number, START + start + total, total, tree, in_flight, slots, timing)))
    return [each for _, each in sorted(rows, key=lambda each: each[0])]


def row(number: int, end: float, total: float, tree: list[Node], in_flight: int, slots: int, timing: Json) -> Json:
    """As the collector writes it."""
    spans = from_node(node("rollout", 0.0, total, tree), 0.0, perf_counter)
    around = {"in_flight": in_flight, "limit": slots, "cpu": 0.05, "lag_s": 0.0005}
    whole = {**account(spans, None), **around, **timing}
    return {"reward": 1.0, "meta": {"key": f"{number}/0", "agent": "agent", "finished_at": end, "timing": whole}}


def profiled(rows: Iterable[Json], of: Json | None = None) -> Json:
    profile = Profile()
    for each in rows:
        profile.add(RowFacts(each))
    return profile.report(of)


def verdict(rows: Iterable[Json], of: Json | None = None) -> Json:
    result: Json = profiled(rows, config() if of is None else of)["verdict"]
    return result


def always(total: float, *tree: Node) -> Made:
    """Every rollout is the same."""
    return lambda start, at_once: (total, list(tree))


def call(took: Callable[[float, int], float], **counts: float) -> Made:
    """One call of the model, which takes as long as this says."""

    def made(start: float, at_once: int) -> Planted:
        seconds = took(start, at_once)
        return seconds, [node("model", 0.0, seconds, **counts)]

    return made


def waiting(model_s: float = 0.2, verify_s: float = 0.01) -> Made:
    """A rollout that only waits; the model's times vary a little, so that rollouts do not march in step."""
    chance = random.Random(0)

    def made(start: float, at_once: int) -> Planted:
        model = model_s * (0.9 + 0.2 * chance.random())
        tree = [node("model", 0.0, model, tokens=50), node("verify", model, verify_s)]
        return model + verify_s, tree

    return made


def one_at_a_time(first_s: float, length_s: float, make: Callable[[float, float], list[Node]]) -> Made:
    """A rollout whose second half runs on an interpreter that has one use at a time."""
    free = 0.0

    def made(start: float, at_once: int) -> Planted:
        nonlocal free
        begun = max(start + first_s, free)
        free = begun + length_s
        return free - start, make(begun - start, free - start)

    return made


def queueing_model(places: int, alone_s: float) -> Made:
    """A server that answers so many at once; the others wait in line."""
    servers = [0.0] * places

    def took(start: float, at_once: int) -> float:
        free = max(heapq.heappop(servers), start)
        heapq.heappush(servers, free + alone_s)
        return free + alone_s - start

    return call(took)


def sharing_model(strength: float, slots: int = 16, count: int = 300) -> list[Json]:
    """A run against a server that shares its strength: all calls get on equally fast, none faster than alone."""
    chance = random.Random(5)
    now, begun, rows = 0.0, 0, []
    active: list[list[float]] = []  # what is left of each, when it began, its tokens
    while begun < count or active:
        while begun < count and len(active) < slots:
            tokens = chance.randint(50, 150)
            active.append([tokens / 1000, now, tokens])
            begun += 1
        speed = min(1.0, strength / len(active))
        first = min(active)
        now += first[0] / speed
        for each in active:
            each[0] -= first[0] if each is not first else 0.0
        active.remove(first)
        took = now - first[1]
        tree = [node("model", 0.0, took, tokens=first[2])]
        rows.append(row(len(rows), START + now, took, tree, min(slots, count - len(rows)), slots, {}))
    return rows


def two_turns(takes: Callable[[int], float], *, places: int = 1000, slots: int = 32, count: int = 320) -> list[Json]:
    """A tool call of 9 tokens, then an answer of 18, by a server that answers so many at once; `takes` is by turn."""
    free, todo = [0.0] * places, [(slot * 1e-4, slot, 0, 0.0) for slot in range(slots)]
    begun, rows = slots, []
    answered: dict[int, list[tuple[float, float]]] = {}  # of each rollout
    while todo:
        now, number, turn, start = heapq.heappop(todo)
        if turn == 2:
            (before, length), (after, last) = answered.pop(number)
            calls = [node("model", 0.0, length, tokens=9), node("model", after - before, last, tokens=18)]
            rows.append(row(number, START + now, now - start, calls, min(slots, count - len(rows)), slots, {}))
            if begun < count:
                heapq.heappush(todo, (now, begun, 0, 0.0))
                begun += 1
            continue
        end = max(heapq.heappop(free), now) + takes(turn)
        heapq.heappush(free, end)
        answered.setdefault(number, []).append((now, end - now))
        heapq.heappush(todo, (end, number, turn + 1, start if turn else now))
    return rows


def connected(name: str, places: int, took: Callable[[int], float]) -> Made:
    """Calls that wait for one of so many connections, and then take a time by how many others run."""
    free = [0.0] * places

    def made(start: float, at_once: int) -> Planted:
        begun = max(heapq.heappop(free), start)
        end = begun + took(sum(each > begun for each in free))
        heapq.heappush(free, end)
        wait = node("connection", 0.0, begun - start, **{name: float(places)})
        below = [wait] if begun > start else []
        return end - start, [node("model", 0.0, end - start, below, first_byte_us=199_000)]

    return made
