"""Turns: what `reset` and `step` may return, whose fault is what, and what the steps come to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from velodrome import TurnEnvironment, tool
from velodrome.contracts import Resources, Turns
from velodrome.errors import InputError, RolloutError, TaskError, ToolError, VerifyError

Json = dict[str, Any]


class Guess(TurnEnvironment):
    """Guess a number."""

    def reset(self, task: Json, session: Json) -> Any:
        session["secret"] = task["secret"]
        return "Guess a number."

    def step(self, action: str, session: Json) -> Any:
        number = int(action)
        if number == session["secret"]:
            return "Right.", 1.0, True, False, {"solved": True}
        return "Too low." if number < session["secret"] else "Too high.", -0.25, False, False, {"solved": False}


class Returns(TurnEnvironment):
    """`reset` and `step` give what they are told to give, or raise it."""

    first: Any = None
    then: Any = None

    def reset(self, task: Json) -> Any:
        return given(self.first)

    async def step(self, action: str) -> Any:
        return given(self.then(action) if callable(self.then) else self.then)


def given(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    return value


def play(environment: TurnEnvironment, *actions: str, task: Json | None = None) -> list[Any]:
    """The first turn, the answers to the actions, the score."""

    async def main() -> list[Any]:
        session = await environment.open(task or {})
        turns = [await environment.begin(session, task or {})]
        turns += [await environment.advance(session, action) for action in actions]
        turns.append(await environment.score(session, task or {}, {"output": []}))
        await environment.close(session)
        return turns

    return asyncio.run(main())


def failure(work: Callable[[], Any]) -> RolloutError:
    with pytest.raises(RolloutError) as caught:
        work()
    return caught.value


def test_a_game_that_went_badly_cannot_be_begun_again() -> None:
    async def main() -> Json:
        environment, task = Guess(), {"secret": 7}
        session = await environment.open(task)
        for _ in range(2):  # before a move it changes nothing
            await environment.begin(session, task)
        await environment.advance(session, "3")
        with pytest.raises(ToolError, match="the game of this session has begun"):
            await environment.begin(session, task)
        return await environment.advance(session, "7")

    assert asyncio.run(main())["terminated"]


def test_the_reward_is_the_sum_of_the_steps_and_the_last_info_is_beside_it() -> None:
    assert isinstance(Guess(), Resources)
    assert isinstance(Guess(), Turns)
    first, low, right, score = play(Guess(), "3", "7", task={"secret": 7})
    assert first == {"observation": "Guess a number.", "info": {}}
    assert low == {
        "observation": "Too low.",
        "reward": -0.25,
        "terminated": False,
        "truncated": False,
        "info": {"solved": False},
    }
    assert (right["terminated"], score) == (True, {"reward": 0.75, "solved": True})


def test_an_illegal_move_is_told_to_the_model_and_earns_nothing() -> None:
    _, illegal, _, score = play(Guess(), "seven", "7", task={"secret": 7})
    assert illegal["observation"].startswith("error: invalid literal for int()")
    assert (illegal["reward"], illegal["terminated"]) == (0.0, False)
    assert score == {"reward": 1.0, "solved": True}


def test_too_many_illegal_moves_are_a_limit() -> None:
    *_, last, score = play(Guess(illegal_moves=2), "what", "7 8", task={"secret": 7})
    assert (last["terminated"], last["truncated"], score) == (False, True, {"reward": 0.0})


def test_without_a_reset_the_prompt_of_the_task_begins() -> None:
    class Echo(TurnEnvironment):
        def step(self, action: str, session: Json) -> Any:
            session["said"] = [*session.get("said", ()), action]
            return action, 1, len(session["said"]) == 2, False, None

    first, _, end, score = play(Echo(), "a", "b")
    assert first == {"observation": None, "info": {}}
    assert (end["terminated"], end["info"], score) == (True, {}, {"reward": 2.0})


@pytest.mark.parametrize(
    ("result", "observation"),
    [
        (("text", 1, False, True, {}), "text"),
        ((None, numpy.float32(0.5), numpy.bool_(False), numpy.int64(1), {"mask": numpy.array([1, 0])}), None),
        ((numpy.int64(5), 0, False, True, None), "5"),
        (({"x": 1}, 0, 0, 1, {}), '{"x":1}'),
        (([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], 0, False, True, {}), ...),
    ],
)
def test_observations_and_numbers_of_every_usual_kind_are_taken(result: Any, observation: Any) -> None:
    _, turn, _ = play(Returns(then=result), "go")
    assert turn["observation"] == (result[0] if observation is ... else observation)
    assert (turn["terminated"], turn["truncated"], type(turn["reward"])) == (False, True, float)
    assert turn["info"] == ({"mask": [1, 0]} if result[4] and "mask" in result[4] else {})


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (("text", 1.0, False, False), "not (observation, reward, terminated, truncated, info)"),
        ("text", "not (observation, reward, terminated, truncated, info)"),
        (None, "not (observation, reward, terminated, truncated, info)"),
        (("text", float("nan"), False, False, {}), '"reward" nan'),
        (("text", None, False, False, {}), '"reward" None'),
        (("text", True, False, False, {}), '"reward" True'),
        (("text", 1e300, False, False, {}), '"reward" 1e+300'),
        (("text", 1, None, False, {}), 'None as "terminated"'),
        (("text", 1, False, "no", {}), "'no' as \"truncated\""),
        (("text", 1, False, False, [1]), '[1] as "info"'),
        (("text", 1, False, False, {"x": float("inf")}), "not finite"),
        (("text", 1, False, False, {"x": object()}), "not JSON"),
        ((object(), 1, False, False, {}), "not JSON"),
        (([{"role": "assistant", "content": "I win"}], 1, False, False, {}), "not a message"),
        ((["text"], 1, False, False, {}), "not a message"),
        (("\ud800", 1, False, False, {}), "not valid Unicode"),
        (KeyError("board"), "step: KeyError: 'board'"),
        (SystemExit(1), "SystemExit"),
    ],
)
def test_a_step_that_fails_or_returns_something_else_is_the_environments_fault(result: Any, says: str) -> None:
    error = failure(lambda: play(Returns(then=result), "go"))
    assert isinstance(error, ToolError)
    assert says in str(error)
    assert str(error.place).startswith("tests/resources_servers/test_turn_environment.py:")


@pytest.mark.parametrize("result", [ValueError("no board"), [{"content": "no role"}], ("text", [1])])
def test_a_reset_that_fails_is_the_environments_fault(result: Any) -> None:
    error = failure(lambda: play(Returns(first=result)))
    assert isinstance(error, ToolError)
    assert str(error).startswith("reset")
    assert error.place is not None


def test_a_task_that_lacks_something_is_blamed_on_the_input() -> None:
    assert isinstance(failure(lambda: play(Returns(first=TaskError('no "seed"')))), TaskError)


def test_a_step_that_hangs_is_given_up() -> None:
    class Hangs(TurnEnvironment):
        async def step(self, action: str) -> Any:
            await asyncio.Event().wait()

    error = failure(lambda: play(Hangs(turn_timeout_s=0.01), "go"))
    assert isinstance(error, ToolError)
    assert "no answer within 0.01 s" in str(error)


def test_nothing_is_played_before_the_beginning_or_after_the_end() -> None:
    async def early() -> Any:
        environment = Returns(then=("x", 1, True, False, {}))
        return await environment.advance(await environment.open({}), "go")

    async def unplayed() -> Any:
        environment = Returns()
        return await environment.score(await environment.open({}), {}, {"output": []})

    assert "nothing to play" in str(failure(lambda: asyncio.run(early())))
    assert "nothing to play" in str(failure(lambda: play(Returns(then=("x", 1, True, False, {})), "go", "on")))
    assert isinstance(failure(lambda: asyncio.run(unplayed())), VerifyError)


def test_a_verify_of_its_own_gives_the_reward_and_may_come_later() -> None:
    class Verified(Guess):
        def verify(self, task: Json, response: Any) -> float:
            return 0.125

    assert play(Verified(), "7", task={"secret": 7})[-1] == {"reward": 0.125}
    assert asyncio.run(Verified().deferrable()) is True
    assert asyncio.run(Guess().deferrable()) is False


def test_half_characters_of_a_model_do_no_harm() -> None:
    echo = Returns(then=lambda action: (action, 0, True, False, {}))
    assert play(echo, "a\ud800é")[1]["observation"] == "a?é"


def test_a_class_without_step_and_a_tool_with_a_turns_name_are_refused() -> None:
    class Empty(TurnEnvironment):
        pass

    class Named(Guess):
        @tool(name="reset")
        def again(self) -> str:
            """Begin again."""
            return ""

    class Misspelt(Guess):
        def seed_sesion(self, task: Json) -> Any:
            return {}

    class Short(TurnEnvironment):
        def step(self) -> Any:
            return None

    for make, says in (
        (Empty, "Empty has no step; write def step(self, action, session)"),
        (Named, '"reset" is a turn'),
        (Misspelt, 'did you mean "seed_session"'),
        (Short, "write def step(self, action)"),
        (lambda: Guess(executor="process"), "Guess: executor: process, but turns"),
        (lambda: Guess(cache=True), "Guess: cache: true, but turns"),
    ):
        with pytest.raises(InputError) as caught:
            make()
        assert says in str(caught.value)


def test_the_documented_game_is_played_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    (code,) = re.findall(r"```python\n(from velodrome import TurnEnvironment\n\n\nclass Guess.*?)```", page, re.DOTALL)
    scope: Json = {"__name__": "documented"}
    exec(compile(code, "docs/environments.md", "exec", dont_inherit=True), scope)
    *_, illegal, right, score = play(scope["Guess"](), "20", "what?", "7", task={"secret": 7})
    assert illegal["observation"].startswith("error: invalid literal")
    assert (right["observation"], score) == ("Right.", {"reward": 1.0, "left": 4})
