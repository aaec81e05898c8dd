from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from pydantic import BaseModel

from velodrome.contracts import Resources
from velodrome.errors import InputError, TaskError, ToolError, VerifyError
from velodrome.resources_servers.environment import Environment, tool

Says = Callable[..., dict[str, Any]]


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


class ReturnsAsync(Returns):
    async def verify(self, task: Any, response: Any) -> Any:
        return await self.act_async()


def returning(value: Any, **config: Any) -> Returns:
    return Returns(act=value, **config)


def called(environment: Environment, name: str, arguments: Any) -> str:
    async def main() -> str:
        session = await environment.open({})
        try:
            return await environment.call(session, name, arguments)
        finally:
            await environment.close(session)

    return asyncio.run(main())


def scored(environment: Environment, task: Any = None, response: Any = None) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        session = await environment.open(task or {})
        return await environment.score(session, task or {}, response or {"output": []})

    return asyncio.run(main())


def raiser(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def test_it_satisfies_the_contract_and_the_guides_examples_run_as_written() -> None:
    assert isinstance(AsInTheGuide(), Resources)
    assert scored(AsInTheGuide(), {"key": "a"}) == {"reward": 0.85, "accuracy": 1.0, "custom_metric": 42}
    assert scored(AsInTheGuide(fast_mode=True), {"key": "b"}) == {"reward": 0.0}


def test_a_verifier_sees_the_final_text_the_tool_calls_and_the_items(says: Says) -> None:
    class Looks(Environment):
        def verify(self, task: Any, response: Any) -> Any:
            call = response.tool_calls[0]
            return {"reward": 1, "text": response.text, "call": [call.name, call.arguments, call.output]} | {
                "items": len(response.items)
            }

    response = says("it is 4", ("add", '{"a": 2}', "4"))
    assert scored(Looks(), {}, response) == {
        "reward": 1.0,
        "text": "it is 4",
        "call": ["add", {"a": 2}, "4"],
        "items": 3,
    }


def test_tool_results_are_text_or_json() -> None:
    @dataclass
    class Place:
        name: str

    class Model(BaseModel):
        x: int

    for value, text in [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        (3.5, "3.5"),
        (True, "true"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (Place("Oslo"), '{"name":"Oslo"}'),
        (Model(x=1), '{"x":1}'),
        ([None, (1, 2)], "[null,[1,2]]"),
    ]:
        assert called(returning(value), "give", {}) == text


@pytest.mark.parametrize(
    ("value", "why"),
    [(float("nan"), "not finite"), ({"a": [1.0, math.inf]}, "not finite"), ({1}, "not JSON"), ("\ud800", "Unicode")],
)
def test_a_tool_result_that_is_not_json_is_the_tools_fault(value: Any, why: str) -> None:
    with pytest.raises(ToolError, match=rf"^give returned .*{why}"):
        called(returning(value), "give", {})


def test_a_long_tool_result_is_cut_and_says_so() -> None:
    text = called(returning("é" * 10, max_tool_output_bytes=7), "give", {})
    assert text == "ééé\n[cut: the first 7 of 20 bytes]"
    assert called(returning([1] * 10, max_tool_output_bytes=5), "give", {}) == "[1,1,\n[cut: the first 5 of 21 bytes]"


def test_the_models_mistakes_are_told_to_the_model_in_one_line() -> None:
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
        ("add", "{", "error: add: the arguments must be a JSON object"),
        ("add", {}, "error: add: a: Field required"),
        ("add", {"a": 1, "c": 2}, "error: add: c: Extra inputs are not permitted"),
        ("add", {"a": -1}, "error: a must not be negative"),
    ]:
        assert called(environment, name, arguments) == text


@pytest.mark.parametrize("error", [RuntimeError("disk on fire"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_what_a_tool_raises_is_its_own_fault(error: BaseException) -> None:
    with pytest.raises(ToolError, match=f"^give: {type(error).__name__}") as caught:
        called(returning(raiser(error)), "give", {})
    assert caught.value.boundary == "tool"


@pytest.mark.parametrize("error", [RuntimeError("disk on fire"), SystemExit(3), asyncio.CancelledError()])
def test_async_code_is_blamed_like_any_other(error: BaseException) -> None:
    async def at_once() -> Any:
        raise error

    async def later() -> Any:
        await asyncio.sleep(0)
        raise error

    for act in (at_once, later):
        environment = ReturnsAsync()
        environment.act_async = act
        with pytest.raises(ToolError, match=f"^give_async: {type(error).__name__}"):
            called(environment, "give_async", {})
        with pytest.raises(VerifyError, match=f"^verify: {type(error).__name__}"):
            scored(environment)


def test_tell_tool_errors_tells_the_model_instead() -> None:
    environment = returning(raiser(RuntimeError("disk on fire")), tell_tool_errors=True)
    assert called(environment, "give", {}) == "error: give: RuntimeError: disk on fire"


def test_code_that_hangs_is_given_up_sync_or_async() -> None:
    release = threading.Event()

    async def for_ever() -> Any:
        await asyncio.get_running_loop().create_future()

    class Hangs(ReturnsAsync):
        def seed_session(self, task: Any) -> Any:
            return release.wait() if task.get("hang") else None

    environment = Hangs(tool_timeout_s=0.05, verify_timeout_s=0.06)
    environment.act = release.wait
    environment.act_async = for_ever
    try:
        with pytest.raises(ToolError, match=r"^give: no answer within 0\.05 s$"):
            called(environment, "give", {})
        with pytest.raises(ToolError, match=r"^give_async: no answer within 0\.05 s$"):
            called(environment, "give_async", {})
        with pytest.raises(VerifyError, match=r"^verify: no answer within 0\.06 s$"):
            scored(environment)
        with pytest.raises(ToolError, match=r"^seed_session: no answer within 0\.07 s$"):
            asyncio.run(Hangs(session_timeout_s=0.07).open({"hang": True}))
    finally:
        release.set()


def test_a_timeout_of_the_users_own_is_not_taken_for_ours() -> None:
    async def times_out() -> Any:
        async with asyncio.timeout(0.001):
            await asyncio.get_running_loop().create_future()

    environment = ReturnsAsync()
    environment.act_async = times_out
    with pytest.raises(VerifyError, match=r"^verify: TimeoutError$"):
        scored(environment)


def test_cancelling_a_rollout_cancels_the_async_code_in_it() -> None:
    ended: list[str] = []

    async def waits() -> Any:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cleaned up")

    async def main() -> None:
        environment = ReturnsAsync()
        environment.act_async = waits
        task = asyncio.create_task(environment.score("1", {}, {"output": []}))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cleaned up"]


def test_a_sync_method_that_returns_a_coroutine_is_awaited() -> None:
    async def answer() -> str:
        await asyncio.sleep(0)
        return "awaited"

    assert called(returning(lambda: answer()), "give", {}) == "awaited"


def test_scores_are_made_plain() -> None:
    @dataclass
    class Score:
        reward: float
        parts: tuple[int, ...]

    class Model(BaseModel):
        reward: float
        note: str | None = None

    for value, score in [
        ({"reward": 0.5}, {"reward": 0.5}),
        ({"reward": 1, "ok": True, "note": None, "deep": {"x": [1]}}, {"reward": 1.0, "ok": True, "note": None}),
        (0.25, {"reward": 0.25}),
        ({"reward": 1.0, "note": None, "day": date(2026, 1, 2)}, {"reward": 1.0, "note": None, "day": "2026-01-02"}),
        (True, {"reward": 1.0}),
        (0, {"reward": 0.0}),
        (Score(1.0, (1, 2)), {"reward": 1.0, "parts": [1, 2]}),
        (Model(reward=0.75), {"reward": 0.75, "note": None}),
    ]:
        result = scored(returning(value))
        result.pop("deep", None)
        assert (result, type(result["reward"])) == (score, float)


def test_numpy_numbers_in_a_score_are_numbers() -> None:
    import numpy

    value = {"reward": numpy.float32(0.5), "right": numpy.bool_(True), "counts": numpy.array([1, 2])}
    assert scored(returning(value)) == {"reward": 0.5, "right": True, "counts": [1, 2]}
    with pytest.raises(VerifyError, match='"loss" is not finite'):
        scored(returning({"reward": 1.0, "loss": numpy.float32("nan")}))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, 'not a number or a dict with "reward"'),
        ("1.0", 'not a number or a dict with "reward"'),
        ({"score": 1}, 'no "reward"'),
        ({"reward": None}, '"reward" is None, not a number'),
        ({"reward": "1"}, "\"reward\" is '1', not a number"),
        ({"reward": float("nan")}, '"reward" is not finite'),
        ({"reward": 1.0, "loss": math.inf}, '"loss" is not finite'),
        (float("nan"), '"reward" is not finite'),
        ({"reward": 1e308}, "beyond 1e+100"),
        (2**2000, '"reward" does not fit a number'),
        ({"reward": 10**400}, '"reward" does not fit a number'),
        ({"reward": 1.0, "n": 2**70}, "exceeds 64-bit range"),
        ({"reward": 1.0, "deep": {"x": [math.nan]}}, "not finite"),
        ({"reward": 1.0, "who": {1}}, "not JSON"),
        ({"reward": 1.0, 5: 1}, "not JSON"),
    ],
)
def test_what_is_no_score_is_an_error_and_never_a_zero(value: Any, why: str) -> None:
    with pytest.raises(VerifyError) as caught:
        scored(returning(value))
    assert why in str(caught.value)
    assert str(caught.value).startswith("verify returned ")


def test_an_error_that_names_its_boundary_keeps_it() -> None:
    with pytest.raises(TaskError, match=r"^no key$"):
        scored(returning(raiser(TaskError("no key"))))
    error = ToolError("on purpose")
    error.__cause__ = ValueError("not for the model")
    with pytest.raises(ToolError, match=r"^on purpose$"):
        called(returning(raiser(error)), "give", {})


class Counts(Environment):
    """Sessions, all sync."""

    def setup(self) -> None:
        self.closed: list[Any] = []

    def seed_session(self, task: Any) -> Any:
        return {"n": task["start"]}

    def close_session(self, session: Any) -> None:
        self.closed.append(session)

    @tool
    def add(self, n: int, session: Any) -> int:
        session["n"] += n
        return session["n"]

    def verify(self, task: Any, response: Any, session: Any) -> Any:
        return {"reward": session["n"]}


class CountsAsync(Counts):
    """The same, all async."""

    async def seed_session(self, task: Any) -> Any:
        return super().seed_session(task)

    async def close_session(self, session: Any) -> None:
        super().close_session(session)

    @tool
    async def add(self, n: int, session: Any) -> int:
        return super().add(n, session)

    async def verify(self, task: Any, response: Any, session: Any) -> Any:
        return super().verify(task, response, session)


@pytest.mark.parametrize("owner", [Counts, CountsAsync])
def test_each_session_has_its_own_state_and_is_closed_once(owner: type[Counts]) -> None:
    environment = owner()

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


def test_a_session_that_is_not_open_is_an_error_of_the_caller() -> None:
    environment = Counts()
    with pytest.raises(ToolError, match=r"^session 99 is not open$"):
        asyncio.run(environment.call("99", "add", {"n": 1}))
    with pytest.raises(VerifyError, match=r"^session 99 is not open$"):
        asyncio.run(environment.score("99", {}, {"output": []}))
    asyncio.run(environment.close("99"))


def test_sessions_left_open_are_closed_with_the_environment_even_if_one_fails() -> None:
    class Fragile(Counts):
        def close_session(self, session: Any) -> None:
            super().close_session(session)
            if session["n"] == 1:
                raise OSError("gone")

    async def main() -> Fragile:
        environment = Fragile()
        for start in (1, 2, 3):
            await environment.open({"start": start})
        with pytest.raises(ToolError, match=r"^close_session: OSError: gone$"):
            await environment.aclose()
        return environment

    environment = asyncio.run(main())
    assert sorted(each["n"] for each in environment.closed) == [1, 2, 3]


def test_a_seed_that_comes_too_late_is_closed_all_the_same() -> None:
    release = threading.Event()

    class Slow(Environment):
        closed: asyncio.Future[Any] | None = None

        def seed_session(self, task: Any) -> str:
            release.wait()
            return "container"

        async def close_session(self, session: Any) -> None:
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


def test_an_environment_written_for_version_01_is_refused_with_the_new_way() -> None:
    with pytest.raises(InputError, match=r"annotated attribute.*environments\.md#settings.*test_environment\.py:\d+"):

        class Old(Environment):
            def __init__(self, config: Any, links: Any) -> None:
                super().__init__()


def test_the_example_in_the_docs_is_the_file_that_is_tested(says: Says) -> None:
    home = Path(__file__).parents[2]
    path = home / "examples" / "weather_environment.py"
    spec = importlib.util.spec_from_file_location("weather_environment", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    weather = module.Weather()
    assert called(weather, "get_weather", {"city": "Oslo"}) == "snow"
    assert called(weather, "get_weather", {"city": "Atlantis"}).startswith("error: no forecast for Atlantis")
    response = says("There is Snow in Oslo.", ("get_weather", '{"city": "Oslo"}', "snow"))
    assert scored(weather, {"expected": "snow"}, response) == {"reward": 1.0, "accuracy": 1.0, "looked_up": 1.0}
    shown = path.read_text().partition("class Weather")[2]
    assert f"class Weather{shown}```" in (home / "docs" / "environments.md").read_text()


def test_importing_an_environment_loads_no_server_and_no_mathematics() -> None:
    heavy = {"aiohttp", "starlette", "torch", "hydra", "sympy", "math_verify", "datasets"}
    code = (
        "import sys\nfrom velodrome.resources_servers.math_with_judge.app import MathWithJudge\n"
        "MathWithJudge()\nimport json; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    loaded = set(json.loads(done.stdout))
    assert heavy & loaded == set()
