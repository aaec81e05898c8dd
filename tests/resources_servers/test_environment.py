from __future__ import annotations

import asyncio
import functools
import math
import re
import runpy
import threading
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy
import pytest
from pydantic import BaseModel

from tests.resources_servers.playing import ROOT, opened, says, score
from tests.support.patience import DEADLINE_S
from velodrome.contracts import Resources
from velodrome.errors import TaskError, ToolError, VerifyError
from velodrome.resources_servers.environment import Environment, tool


@functools.lru_cache(maxsize=10)
def expensive_lookup(key: str) -> float:
    return {"a": 0.85, "b": 0.25}[key]


class AsInTheGuide(Environment):
    """The patterns of the guides, as they are written there."""

    fast_mode: bool = False

    def verify(self, task, response):  # type: ignore[no-untyped-def]
        data = expensive_lookup(task["key"])
        if self.config.get("fast_mode", False):
            return {"reward": 0.0}
        return {"reward": data, "accuracy": 1.0, "custom_metric": 42}


class Returns(Environment):
    """`verify` and the tool return what they are told to; `act` may be a callable that does worse."""

    act: Any = None
    act_async: Any = None

    @tool
    def give(self) -> Any:
        """Give."""
        return self.act() if callable(self.act) else self.act

    @tool
    async def give_async(self) -> Any:
        return await self.act_async()

    def verify(self, task: Any, response: Any) -> Any:
        return self.act() if callable(self.act) else self.act


@dataclass(slots=True)
class Slotted:
    x: float


class Extra(BaseModel, extra="allow"):
    """A model with fields that it does not declare."""


class ReturnsAsync(Returns):
    async def verify(self, task: Any, response: Any) -> Any:
        return await self.act_async()


def returning(value: Any, **config: Any) -> Returns:
    return Returns(act=value, **config)


def called(environment: Environment, name: str, arguments: Any) -> str:
    return opened(environment, {}, (name, arguments))[0]


def scored(environment: Environment, task: Any = None, response: Any = "") -> dict[str, Any]:
    return score(environment, task or {}, response)


def raising(error: BaseException) -> Returns:
    def act() -> Any:
        raise error

    return Returns(act=act)


def test_it_satisfies_the_contract_and_the_guides_examples_run_as_written():
    assert isinstance(AsInTheGuide(), Resources)
    assert scored(AsInTheGuide(), {"key": "a"}) == {"reward": 0.85, "accuracy": 1.0, "custom_metric": 42}
    assert scored(AsInTheGuide(fast_mode=True), {"key": "b"}) == {"reward": 0.0}


def test_tool_results_are_text_or_json():
    @dataclass
    class Place:
        name: str

    class Model(BaseModel):
        x: int

    for value, text in [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        (True, "true"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (Place("Oslo"), '{"name":"Oslo"}'),
        (Model(x=1), '{"x":1}'),
        ([None, (1, 2)], "[null,[1,2]]"),
    ]:
        assert called(returning(value), "give", {}) == text
    assert called(returning(lambda: asyncio.sleep(0, "awaited")), "give", {}) == "awaited"
    for value, most, text in [
        ("é" * 10, 7, "ééé\n[cut: the first 7 of 20 bytes]"),
        ([1] * 10, 5, "[1,1,\n[cut: the first 5 of 21 bytes]"),
    ]:
        assert called(returning(value, max_tool_output_bytes=most), "give", {}) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [(float("nan"), "not finite"), ({"a": [1.0, math.inf]}, "not finite"), ({1}, "not JSON"), ("\ud800", "Unicode")],
)
def test_a_tool_result_that_is_not_json_is_the_tools_fault(value: Any, why: str):
    with pytest.raises(ToolError, match=rf"^give returned .*{why}"):
        called(returning(value), "give", {})


def test_the_models_mistakes_are_told_to_the_model_in_one_line():
    class Adds(Environment):
        @tool
        async def add(self, a: int, b: int = 1) -> int:
            if a < 0:
                raise ValueError("a must not be\nnegative")
            return a + b

        def verify(self, task: Any, response: Any) -> Any: ...

    environment = Adds()
    for name, arguments, text in [
        ("add", {"a": "2"}, "3"),
        ("ad", {}, 'error: there is no tool "ad"; did you mean "add"?'),
        ("multiply", {}, 'error: there is no tool "multiply"; there are: add'),
        ("x" * 100_000, {}, f'error: there is no tool "{"x" * 64}…"; there are: add'),
        ("add", [1], "error: add: the arguments must be a JSON object"),
        ("add", {}, "error: add: a: Field required"),
        ("add", {"a": 1, "c": 2}, "error: add: c: Extra inputs are not permitted"),
        ("add", {"a": -1}, "error: a must not be negative"),
    ]:
        assert called(environment, name, arguments) == text


@pytest.mark.parametrize("error", [RuntimeError("disk on fire"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_what_a_tool_raises_is_its_own_fault(error: BaseException):
    with pytest.raises(ToolError, match=f"^give: {type(error).__name__}") as caught:
        called(raising(error), "give", {})
    assert caught.value.boundary == "tool"
    environment = raising(error)
    environment.tell_tool_errors = True
    assert called(environment, "give", {}).startswith(f"error: give: {type(error).__name__}")


@pytest.mark.parametrize("error", [RuntimeError("disk on fire"), SystemExit(3), asyncio.CancelledError()])
def test_async_code_is_blamed_like_any_other(error: BaseException):
    async def at_once() -> Any:
        raise error

    async def later() -> Any:
        await asyncio.sleep(0)
        raise error

    for act in (at_once, later):
        environment = ReturnsAsync(act_async=act)
        with pytest.raises(ToolError, match=f"^give_async: {type(error).__name__}"):
            called(environment, "give_async", {})
        with pytest.raises(VerifyError, match=f"^verify: {type(error).__name__}"):
            scored(environment)


def test_code_that_hangs_is_given_up_sync_or_async():
    release = threading.Event()

    async def for_ever() -> Any:
        await asyncio.get_running_loop().create_future()

    class Hangs(ReturnsAsync):
        def seed_session(self, task: Any) -> Any:
            return release.wait() if task.get("hang") else None

    environment = Hangs(act=release.wait, act_async=for_ever, tool_timeout_s=0.05, verify_timeout_s=0.06)
    try:
        for name in ("give", "give_async"):
            with pytest.raises(ToolError, match=rf"^{name}: no answer within 0\.05 s$"):
                called(environment, name, {})
        with pytest.raises(VerifyError, match=r"^verify: no answer within 0\.06 s$"):
            scored(environment)
        with pytest.raises(ToolError, match=r"^seed_session: no answer within 0\.07 s$"):
            asyncio.run(Hangs(session_timeout_s=0.07).open({"hang": True}))
    finally:
        release.set()


def test_a_timeout_of_the_users_own_is_not_taken_for_ours():
    async def times_out() -> Any:
        async with asyncio.timeout(0.001):
            await asyncio.get_running_loop().create_future()

    with pytest.raises(VerifyError, match=r"^verify: TimeoutError$"):
        scored(ReturnsAsync(act_async=times_out))


def test_scores_are_made_plain():
    for value, expected in [
        ({"reward": 1, "ok": True, "deep": {"x": [1]}}, {"reward": 1.0, "ok": True, "deep": {"x": [1]}}),
        ({"reward": 1.0, "note": None, "day": date(2026, 1, 2)}, {"reward": 1.0, "note": None, "day": "2026-01-02"}),
        (True, {"reward": 1.0}),
        ({"reward": 1.0, "parts": (1, 2)}, {"reward": 1.0, "parts": [1, 2]}),
        ({"reward": numpy.float32(0.5), "right": numpy.bool_(True)}, {"reward": 0.5, "right": True}),
        ({"reward": 1, "counts": numpy.array([1, 2])}, {"reward": 1.0, "counts": [1, 2]}),
    ]:
        result = scored(returning(value))
        assert (result, type(result["reward"])) == (expected, float)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, 'not a number or a dict with "reward"'),
        ({"reward": "1"}, "\"reward\" is '1', not a number"),
        ({"reward": 1.0, "loss": math.inf}, '"loss" is not finite'),
        ({"reward": 1.0, "loss": numpy.float32("nan")}, '"loss" is not finite'),
        (float("nan"), '"reward" is not finite'),
        ({"reward": 1e308}, "beyond 1e+100"),
        ({"reward": 10**400}, '"reward" does not fit a number'),
        ({"reward": 1.0, "n": 2**70}, "exceeds 64-bit range"),
        ({"reward": 1.0, "deep": {"x": [math.nan]}}, "not finite"),
        ({"reward": 1.0, "deep": Slotted(math.nan)}, "not finite"),
        ({"reward": 1.0, "deep": Extra.model_validate({"x": math.nan})}, "not finite"),
        ({"reward": 1.0, "who": {1}}, "not JSON"),
    ],
)
def test_what_is_no_score_is_an_error_and_never_a_zero(value: Any, why: str):
    with pytest.raises(VerifyError, match=rf"^verify returned .*{re.escape(why)}"):
        scored(returning(value))


def test_an_error_that_names_its_boundary_keeps_it():
    with pytest.raises(TaskError, match=r"^no key$"):
        scored(raising(TaskError("no key")))
    error = ToolError("on purpose")
    error.__cause__ = ValueError("not for the model")
    with pytest.raises(ToolError, match=r"^on purpose$"):
        called(raising(error), "give", {})


class Counts(Environment):
    """Sessions, all sync."""

    def setup(self):
        self.closed: list[Any] = []

    def seed_session(self, task: Any) -> Any:
        return {"n": task["start"]}

    def close_session(self, session: Any):
        self.closed.append(session)

    @tool
    def add(self, n: int, session: Any) -> int:
        session["n"] += n
        return session["n"]

    def verify(self, task: Any, response: Any, session: Any) -> Any:
        return {"reward": session["n"]}


def test_each_session_has_its_own_state_and_is_closed_once():
    environment = Counts()

    async def rollout(start: int) -> tuple[str, float]:
        session = await environment.open({"start": start})
        text = await environment.call(session, "add", {"n": 1})
        score = await environment.score(session, {}, {"output": []})
        await environment.close(session)
        await environment.close(session)
        return text, score["reward"]

    async def main() -> list[tuple[str, float]]:
        return await asyncio.gather(*[rollout(start) for start in range(20)])

    assert asyncio.run(main()) == [(str(start + 1), start + 1.0) for start in range(20)]
    assert sorted(each["n"] for each in environment.closed) == list(range(1, 21))
    assert environment._sessions == {}
    with pytest.raises(ToolError, match=r"^session 99 is not open$"):
        asyncio.run(environment.call("99", "add", {"n": 1}))
    with pytest.raises(VerifyError, match=r"^session 99 is not open$"):
        asyncio.run(environment.score("99", {}, {"output": []}))


def test_sessions_left_open_are_closed_with_the_environment_even_if_one_fails():
    class Fragile(Counts):
        def close_session(self, session: Any):
            super().close_session(session)
            if session["n"] == 1:
                raise OSError("gone")

    environment = Fragile()

    async def main():
        for start in (1, 2, 3):
            await environment.open({"start": start})
        with pytest.raises(ToolError, match=r"^close_session: OSError: gone$"):
            await environment.aclose()

    asyncio.run(main())
    assert sorted(each["n"] for each in environment.closed) == [1, 2, 3]


def test_a_seed_that_comes_too_late_is_closed_all_the_same():
    release = threading.Event()

    class Slow(Environment):
        closed: asyncio.Future[Any] | None = None

        def seed_session(self, task: Any) -> str:
            release.wait()
            return "container"

        async def close_session(self, session: Any):
            assert self.closed is not None
            self.closed.set_result(session)

        def verify(self, task: Any, response: Any) -> Any: ...

    async def main() -> Any:
        environment = Slow(session_timeout_s=0.03)
        with pytest.raises(ToolError, match=r"^seed_session: no answer"):
            await environment.open({})
        environment.closed = asyncio.get_running_loop().create_future()
        release.set()
        state = await environment.closed
        await environment.aclose()
        return state

    assert asyncio.run(asyncio.wait_for(main(), DEADLINE_S)) == "container"


def test_the_example_in_the_docs_is_the_file_that_is_tested():
    path = ROOT / "examples" / "weather_environment.py"
    weather = runpy.run_path(str(path))["Weather"]()
    assert called(weather, "get_weather", {"city": "Oslo"}) == "snow"
    assert called(weather, "get_weather", {"city": "Atlantis"}).startswith("error: no forecast for Atlantis")
    response = says("There is Snow in Oslo.", ("get_weather", '{"city": "Oslo"}', "snow"))
    assert scored(weather, {"expected": "snow"}, response) == {"reward": 1.0, "accuracy": 1.0, "looked_up": 1.0}
    shown = path.read_text().partition("class Weather")[2]
    assert f"class Weather{shown}```" in (ROOT / "docs" / "environments.md").read_text()


def test_an_error_that_no_model_can_be_told_is_the_tools_fault():
    class Broken(Environment):
        @tool
        def fail(self, kind: str) -> str:
            raise ValueError("\ud800") if kind == "value" else RuntimeError("\ud800")

        def verify(self, task: Any, response: Any) -> Any: ...

    with pytest.raises(ToolError, match="not valid Unicode"):
        called(Broken(), "fail", {"kind": "value"})
    told = called(Broken(tell_tool_errors=True), "fail", {"kind": "other"})
    assert told == "error: fail: RuntimeError: \\ud800"
