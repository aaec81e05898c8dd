"""Turns: what `reset` and `step` may return, whose fault is what, and what the steps come to."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import numpy
import pytest

from tests.resources_servers.playing import Json, documented
from velodrome import TurnEnvironment, tool
from velodrome.contracts import Turns
from velodrome.errors import InputError, TaskError, ToolError, VerifyError


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


def test_a_game_that_went_badly_cannot_be_begun_again():
    async def main():
        environment, task = Guess(), {"secret": 7}
        session = await environment.open(task)
        await environment.begin(session, task)
        await environment.begin(session, task)  # before a move it changes nothing
        await environment.advance(session, "3")
        with pytest.raises(ToolError, match="the game of this session has begun"):
            await environment.begin(session, task)

    asyncio.run(main())


def test_the_reward_is_the_sum_of_the_steps_and_the_last_info_is_beside_it():
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


def test_an_illegal_move_is_told_to_the_model_and_earns_nothing_and_too_many_are_a_limit():
    _, illegal, _, score = play(Guess(), "seven", "7", task={"secret": 7})
    assert illegal["observation"].startswith("error: invalid literal for int()")
    assert (illegal["reward"], illegal["terminated"]) == (0.0, False)
    assert score == {"reward": 1.0, "solved": True}
    *_, last, score = play(Guess(illegal_moves=2), "what", "7 8", task={"secret": 7})
    assert (last["terminated"], last["truncated"], score) == (False, True, {"reward": 0.0})


@pytest.mark.parametrize(
    ("result", "observation"),
    [
        ((None, numpy.float32(0.5), numpy.bool_(False), numpy.int64(1), {"mask": numpy.array([1, 0])}), None),
        ((numpy.int64(5), 0, False, True, None), "5"),
        (([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], 0, False, True, {}), ...),
    ],
)
def test_observations_and_numbers_of_every_usual_kind_are_taken(result: Any, observation: Any):
    _, turn, _ = play(Returns(then=result), "go")
    assert turn["observation"] == (result[0] if observation is ... else observation)
    assert (turn["terminated"], turn["truncated"], type(turn["reward"])) == (False, True, float)
    assert turn["info"] == ({"mask": [1, 0]} if result[4] and "mask" in result[4] else {})


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (("text", 1.0, False, False), "not (observation, reward, terminated, truncated, info)"),
        (("text", float("nan"), False, False, {}), '"reward" nan'),
        (("text", True, False, False, {}), '"reward" True'),
        (("text", 1, None, False, {}), 'None as "terminated"'),
        (("text", 1, False, False, [1]), '[1] as "info"'),
        (("text", 1, False, False, {"x": float("inf")}), "not finite"),
        (([{"role": "assistant", "content": "I win"}], 1, False, False, {}), "not a message"),
        (KeyError("board"), "step: KeyError: 'board'"),
    ],
)
def test_a_step_that_fails_or_returns_something_else_is_the_environments_fault(result: Any, says: str):
    with pytest.raises(ToolError, match=re.escape(says)) as caught:
        play(Returns(then=result), "go")
    assert str(caught.value.place).startswith("tests/resources_servers/test_turn_environment.py:")


@pytest.mark.parametrize("result", [ValueError("no board"), [{"content": "no role"}], ("text", [1])])
def test_a_reset_that_fails_is_the_environments_fault(result: Any):
    with pytest.raises(ToolError, match=r"^reset") as caught:
        play(Returns(first=result))
    assert caught.value.place is not None
    with pytest.raises(TaskError):
        play(Returns(first=TaskError('no "seed"')))


def test_a_game_may_have_no_reset_and_a_step_that_hangs_is_given_up():
    class Echo(TurnEnvironment):
        async def step(self, action: str) -> Any:
            if action == "wait":
                await asyncio.Event().wait()
            return action, 1, True, False, None

    first, end, score = play(Echo(), "a\ud800é")
    assert first == {"observation": None, "info": {}}
    assert (end["observation"], end["info"], score) == ("a?é", {}, {"reward": 1.0})
    with pytest.raises(ToolError, match=r"no answer within 0\.01 s"):
        play(Echo(turn_timeout_s=0.01), "wait")


def test_the_documented_game_is_played_as_the_page_says():
    game = documented("from velodrome import TurnEnvironment\n\n\nclass Guess")["Guess"]()
    *_, illegal, right, score = play(game, "20", "what?", "7", task={"secret": 7})
    assert illegal["observation"].startswith("error: invalid literal")
    assert (right["observation"], score) == ("Right.", {"reward": 1.0, "left": 4})


def test_nothing_is_played_before_the_beginning_or_after_the_end():
    environment = Returns(then=("x", 1, True, False, {}))

    async def early():
        session = await environment.open({})
        with pytest.raises(ToolError, match="nothing to play"):
            await environment.advance(session, "go")
        with pytest.raises(VerifyError):
            await environment.score(session, {}, {"output": []})

    asyncio.run(early())
    with pytest.raises(ToolError, match="nothing to play"):
        play(environment, "go", "on")


def test_a_verify_of_its_own_gives_the_reward_and_may_come_later():
    class Verified(Guess):
        def verify(self, task: Json, response: Any) -> float:
            return 0.125

    assert play(Verified(), "7", task={"secret": 7})[-1] == {"reward": 0.125}
    assert asyncio.run(Verified().deferrable()) is True
    assert asyncio.run(Guess().deferrable()) is False


def test_a_class_without_step_and_a_tool_with_a_turns_name_are_refused():
    class Empty(TurnEnvironment):
        pass

    class Named(Guess):
        @tool(name="reset")
        def again(self) -> str:
            """Begin again."""
            return ""

    class Short(TurnEnvironment):
        def step(self) -> Any:
            return None

    for make, says in (
        (Empty, "Empty has no step; write def step(self, action, session)"),
        (Named, '"reset" is a turn'),
        (Short, "write def step(self, action)"),
        (lambda: Guess(executor="process"), "Guess: executor: process, but turns"),
    ):
        with pytest.raises(InputError, match=re.escape(says)):
            make()
