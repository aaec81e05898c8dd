"""The wall clock: exact with a fake clock, whatever runs side by side, and nothing about the functions is changed."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from velodrome.timing import wall
from velodrome.timing.wall import Wall


class Clock:
    """Time that passes when it is told to; `sleep` is a wait that ends when the clock is there."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.now + seconds, future))
        await future

    async def run(self, work: Any) -> Any:
        """Run to the end; when everybody waits, go to the next moment that somebody waits for."""
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):
                await asyncio.sleep(0)
            if not task.done():
                self._waiting.sort(key=lambda each: each[0])
                self.now, future = self._waiting.pop(0)
                future.set_result(None)
        return task.result()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def measured(clock: Clock) -> Wall:
    return Wall(clock)


def costs(measured: Wall) -> dict[str, tuple[int, float, float]]:
    """ncall, tsub and ttot by the last part of the name."""
    return {
        key.name.rpartition(".")[2]: (row.cost.ncall, row.cost.tsub, row.cost.ttot)
        for key, row in measured.table().rows.items()
    }


def run(clock: Clock, work: Callable[[], Awaitable[Any]]) -> None:
    """Run a coroutine on this clock."""

    async def whole() -> None:
        await clock.run(work())

    asyncio.run(whole())


def test_a_function_is_charged_its_own_time_and_what_it_calls_in_total(clock: Clock, measured: Wall):
    def inner() -> None:
        clock.advance(2.0)

    def outer() -> None:
        clock.advance(1.0)
        timed_inner()
        timed_inner()
        clock.advance(0.5)

    timed_inner = measured.timed(inner)
    measured.timed(outer)()

    assert costs(measured) == {"inner": (2, 4.0, 4.0), "outer": (1, 1.5, 5.5)}
    rows = {key.name.rpartition(".")[2]: row for key, row in measured.table().rows.items()}
    assert [(cost.ncall, cost.tsub, cost.ttot) for cost in rows["outer"].children.values()] == [(2, 4.0, 4.0)]


def test_an_await_counts_and_calls_side_by_side_cover_their_caller_once(clock: Clock, measured: Wall):
    async def judge(seconds: float) -> None:
        await clock.sleep(seconds)

    async def verify() -> None:
        await clock.sleep(1.0)
        await asyncio.gather(timed_judge(3.0), timed_judge(5.0))
        await clock.sleep(0.25)

    timed_judge = measured.timed(judge)
    run(clock, measured.timed(verify))
    assert costs(measured) == {"judge": (2, 8.0, 8.0), "verify": (1, 1.25, 6.25)}


def test_calls_of_many_tasks_at_once_do_not_take_time_from_each_other(clock: Clock, measured: Wall):
    async def verify(seconds: float) -> None:
        await clock.sleep(seconds)

    timed = measured.timed(verify)
    run(clock, lambda: asyncio.gather(*(timed(1.0 + number) for number in range(10))))
    assert costs(measured) == {"verify": (10, 55.0, 55.0)}


def test_a_call_in_another_thread_belongs_to_the_caller_whose_context_it_has(clock: Clock, measured: Wall):
    def in_thread() -> None:
        clock.advance(2.0)

    def caller() -> None:
        clock.advance(1.0)
        thread = threading.Thread(target=contextvars.copy_context().run, args=(timed_in_thread,))
        thread.start()
        thread.join()

    timed_in_thread = measured.timed(in_thread)
    measured.timed(caller)()
    assert costs(measured) == {"in_thread": (1, 2.0, 2.0), "caller": (1, 1.0, 3.0)}


def test_a_task_that_outlives_its_caller_is_not_taken_off_the_callers_time(clock: Clock, measured: Wall):
    async def background() -> None:
        await clock.sleep(10.0)

    async def caller() -> asyncio.Task[None]:
        task = asyncio.ensure_future(timed_background())
        await clock.sleep(1.0)
        return task

    async def whole() -> None:
        await (await timed_caller())

    timed_background, timed_caller = measured.timed(background), measured.timed(caller)
    run(clock, whole)
    assert costs(measured) == {"background": (1, 10.0, 10.0), "caller": (1, 0.0, 1.0)}


def test_recursion_is_counted_every_time_and_its_time_once(clock: Clock, measured: Wall):
    def down(depth: int) -> None:
        clock.advance(1.0)
        if depth:
            timed(depth - 1)

    timed = measured.timed(down)
    timed(3)
    assert costs(measured) == {"down": (4, 4.0, 4.0)}
    (row,) = measured.table().rows.values()
    assert row.cost.nactual == 1


def test_a_call_that_raises_or_is_cancelled_counts(clock: Clock, measured: Wall):
    def fails() -> None:
        clock.advance(1.0)
        raise KeyError("no")

    async def waits() -> None:
        clock.advance(2.0)
        await asyncio.sleep(3600)

    async def cancelled() -> None:
        task = asyncio.ensure_future(measured.timed(waits)())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with pytest.raises(KeyError):
        measured.timed(fails)()
    asyncio.run(cancelled())
    assert costs(measured) == {"fails": (1, 1.0, 1.0), "waits": (1, 2.0, 2.0)}


APP = """
from contextlib import contextmanager
from functools import lru_cache

from velodrome import Environment, tool
from wrapped_package.sibling import Sums, elsewhere, shared


def decide(task):
    return shared(1)


def numbers():
    yield 1


@contextmanager
def opened():
    yield 2


@lru_cache
def cached(value):
    return value


class Mine(Environment):
    def __init__(self, **settings):
        super().__init__(**settings)

    def seed_session(self, task):
        return {"count": 0}

    @tool
    def add(self, amount: int, session: dict) -> int:
        \"\"\"Add to the count.

        amount: how much
        \"\"\"
        session["count"] += amount
        return session["count"]

    @tool(name="twice")
    async def double(self, value: float) -> float:
        \"\"\"Twice the value.\"\"\"
        return 2 * value

    async def verify(self, task, response, session):
        with opened() as two:
            return {"reward": float(decide(task) + Sums.one() + Sums.of(self) + two + next(numbers()) + cached(0))}

    async def ticks(self):
        yield 1
"""
SIBLING = """
from json import dumps as elsewhere


def shared(value):
    return value


class Sums:
    @staticmethod
    def one():
        return shared(1)

    @classmethod
    def of(cls, other):
        return cls.one()

    def __eq__(self, other):
        return True
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A component of a user's: its module, not made yet."""
    folder = tmp_path / "wrapped_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "sibling.py").write_text(SIBLING)
    (folder / "app.py").write_text(APP)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("wrapped_package.app")
    for name in [name for name in sys.modules if name.startswith("wrapped_package")]:
        del sys.modules[name]


def one_rollout(component: Any) -> tuple[list[Any], list[str], dict[str, Any]]:
    """What a component offers, what its tools say, and its score."""

    async def whole() -> tuple[list[Any], list[str], dict[str, Any]]:
        session = await component.open({})
        said = [
            await component.call(session, "add", {"amount": 2}),
            await component.call(session, "twice", {"value": 4}),
        ]
        said += [await component.call(session, "add", {"amount": "much"})]
        score = await component.score(session, {}, {"output": []})
        await component.close(session)
        tools = await component.tools()
        await component.aclose()
        return tools, said, score

    return asyncio.run(whole())


def test_a_wrapped_component_offers_and_answers_what_it_did_before(package: Any):
    class Untouched(package.Mine):  # type: ignore[misc, name-defined]
        """Made before anything is wrapped: the same code."""

    before = one_rollout(Untouched())
    measured = Wall()
    measured.wrap_package(Path(package.__file__).parent)
    component = package.Mine()

    measured.wrap_package(Path(package.__file__).parent)  # what is wrapped already stays as it is
    assert one_rollout(component) == before
    assert before[1][:2] == ["2", "8.0"]
    assert before[2] == {"reward": 6.0}
    assert asyncio.run(component.deferrable()) is False
    assert inspect.signature(package.Mine.add) == inspect.signature(Untouched.add)


def test_every_function_and_method_of_the_package_is_timed_and_nothing_else(package: Any):
    measured = Wall()
    measured.wrap_package(Path(package.__file__).parent)
    one_rollout(package.Mine())

    result = {key.name: row.cost.ncall for key, row in measured.table().rows.items()}
    assert result == {
        "Mine.__init__": 1,
        "Mine.seed_session": 1,
        "Mine.add": 1,
        "Mine.double": 1,
        "Mine.verify": 1,
        "decide": 1,
        "Sums.one": 2,
        "Sums.of": 1,
        "shared": 3,
    }
    files = {Path(key.file).name for key in measured.table().rows}
    assert files == {"app.py", "sibling.py"}
    assert inspect.isasyncgenfunction(package.Mine.ticks)
    assert inspect.isgeneratorfunction(package.numbers)


def test_components_are_wrapped_only_while_time_is_measured(package: Any):
    original = package.decide
    wall.before_making(package.Mine)
    assert package.decide is original
    measured = Wall()
    wall.activate(measured)
    try:
        wall.before_making(package.Mine)
    finally:
        wall.activate(None)
    assert package.decide is not original
    package.decide({})
    assert sorted(costs(measured)) == ["decide", "shared"]
