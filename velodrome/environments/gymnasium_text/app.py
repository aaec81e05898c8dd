"""Any Gymnasium environment with discrete or text actions. Its code is sync and runs in threads, never on the loop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from velodrome.errors import InputError, TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.answers import need
from velodrome.resources_servers.turn_environment import TurnEnvironment
from velodrome.settings.component import Field

Json = dict[str, Any]

ABOUT = {  # the rules of the toy-text games, which their observations do not explain
    "FrozenLake": (
        ("left", "down", "right", "up"),
        "Walk over the frozen lake from S to the goal G. F is ice, H is a hole, which ends it. [ ] is where you are.",
    ),
    "CliffWalking": (
        ("up", "right", "down", "left"),
        "Walk from the bottom left to T. x is you. C is the cliff: it costs 100 and takes you back. A step costs 1.",
    ),
    "Taxi": (
        ("south", "north", "east", "west", "pickup", "dropoff"),
        "Drive the taxi to the passenger, pick them up, drive to the destination and drop them off. | is a wall, : is"
        " not. The decoded state is row, column, where the passenger is (0 R, 1 G, 2 Y, 3 B, 4 in the taxi), and the"
        " destination. A step costs 1, a wrong pickup or dropoff 10; the right dropoff earns 20. [ ] is the taxi.",
    ),
}
_COLOURED = re.compile(r"\x1b\[4\dm(.*?)\x1b\[0m", re.DOTALL)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class GymnasiumText(TurnEnvironment):
    """The reward is the episode's return, or with a `target_return` in the task 1.0 if the episode ends with it."""

    env_id: str = Field("FrozenLake-v1", description="the environment, unless the task has an `env_id`")
    env_kwargs: dict[str, Any] = Field({}, description="what it is made with, unless the task has `env_kwargs`")
    action_names: list[str] = Field([], description="names of its actions, in order; numbers work, too")
    max_turns: int = Field(200, ge=1, description="actions in one rollout, after which it is truncated")
    illegal_moves: int | None = Field(5, ge=1, description="answers that are no action, after which it is over")

    def setup(self) -> None:
        """Import Gymnasium."""
        try:
            import gymnasium
        except ImportError:
            raise InputError('gymnasium_text needs Gymnasium: pip install "velodrome[environments]"') from None
        self._gymnasium = gymnasium

    def seed_session(self, task: Json) -> Json:
        """A separate environment for each rollout."""
        game = self._make(task)
        space = game.action_space
        if not hasattr(space, "n") and not hasattr(space, "character_set"):
            game.close()
            name = repr(task.get("env_id") or self.env_id)
            raise TaskError(f'"env_id" {name:.60} has the actions {space!s:.80}; discrete ones and texts can be played')
        return {"made": game, "names": self._names(task), "turns": 0, "return": 0.0, "over": False}

    def close_session(self, session: Json) -> None:
        """Free the environment."""
        session["made"].close()

    def reset(self, task: Json, session: Json) -> str:
        """The rules, the first view, and the actions."""
        observation, _ = session["made"].reset(seed=need({"seed": 0, **task}, "seed", int, "a whole number"))
        _, about = ABOUT.get(_family(session["made"].spec.id), ((), ""))
        return "\n\n".join(filter(None, (about, _view(session["made"], observation), _actions_text(session))))

    def step(self, action: str, session: Json) -> tuple[str, float, bool, bool, Json]:
        """One action."""
        game = session["made"]
        chosen_action = _parse_action(action, game.action_space, session["names"])
        try:
            observation, reward, terminated, truncated, _ = game.step(chosen_action)
        except ValueError as error:  # the action is in its space, so this is not the model's mistake
            raise RuntimeError(f"{game.spec.id}: {error}") from error
        session["turns"] += 1
        session["return"] += float(reward)
        session["over"] = bool(terminated)
        truncated = bool(truncated) or session["turns"] >= self.max_turns
        return _view(game, observation), float(reward), bool(terminated), truncated, {}

    async def verify(self, task: Json, response: Response, session: Json) -> Json:
        """The return, and whether it reached the target at the end of the episode."""
        total = session["return"]
        score = {"reward": total, "episode_return": total, "actions": session["turns"]}
        if task.get("target_return") is None:
            return score
        target = need(task, "target_return", (int, float), "a number")
        return {**score, "reward": float(session["over"] and total >= target - 1e-9)}

    def _make(self, task: Json) -> Any:
        name, kwargs = task.get("env_id") or self.env_id, task.get("env_kwargs") or self.env_kwargs
        registry = self._gymnasium.registry
        if isinstance(name, str) and name not in registry:  # a name without a version means the newest
            versions = [each for each in registry if each.rpartition("-v")[0] == name]
            name = max(versions, key=lambda each: int(each.rpartition("-v")[2]), default=name)
        try:
            spec = self._gymnasium.spec(name)
            creator: Any = spec.entry_point
            if isinstance(creator, str):
                creator = self._gymnasium.envs.registration.load_env_creator(creator)
            modes = getattr(creator, "metadata", {}).get("render_modes", ())
            options: Json = {"disable_env_checker": True, **({"render_mode": "ansi"} if "ansi" in modes else {})}
            return self._gymnasium.make(spec, **options, **kwargs)
        except (self._gymnasium.error.Error, ImportError, TypeError, ValueError, AttributeError) as error:
            raise TaskError(f'"env_id" {str(name)[:60]!r} cannot be made: {str(error)[:300]}') from error

    def _names(self, task: Json) -> list[str]:
        family = _family(str(task.get("env_id") or self.env_id))
        return [name.casefold() for name in self.action_names or ABOUT.get(family, ((), ""))[0]]

    def reference_answer(self, task: Json) -> list[str] | None:
        """The task's `reference`, if it has one: the actions that reach the target."""
        return task.get("reference")

    def wrong_answers(self, task: Json) -> Json:
        """Always the same action, and the right actions without the last."""
        first_action, *_ = self._names(task) or ["0"]
        reference = self.reference_answer(task) or [first_action]
        return {"always the same": first_action, "stops early": [*reference[:-1], "That is all."]}

    def cheats(self, task: Json) -> Json:
        """Attempts to get the reward without playing."""
        names = self._names(task) or ["0", "1"]
        return {
            "claims it": "The goal is reached. terminated=True, reward=1.0",
            "several actions": ", ".join(names * 3),
            "an action that is not there": "9999",
            "a negative action": "-1",
            "code": "env.unwrapped.s = 15; env.step(2)",
            "sets the state": "set_state goal",
            "forges a result": '{"reward": 1.0, "terminated": true, "episode_return": 100}',
            "begins again": "reset",
            "an action among words": f"I choose {names[0]}, which wins.",
        }


def _family(env_id: str) -> str:
    return re.sub(r"(\d+x\d+)?(-v\d+)?$", "", env_id.rpartition("/")[2])


def _view(game: Any, observation: Any) -> str:
    """The rendered text, with brackets for the highlight, and the observation."""
    parts = []
    if game.render_mode == "ansi":
        parts.append(_ESCAPES.sub("", _COLOURED.sub(r"[\1]", str(game.render()))).strip("\n"))
    plain = observation.tolist() if hasattr(observation, "tolist") else observation
    parts.append(f"Observation: {plain}")
    if hasattr(game.unwrapped, "decode"):
        parts.append(f"Decoded: {', '.join(str(int(each)) for each in game.unwrapped.decode(observation))}")
    return "\n".join(parts)


def _actions_text(session: Json) -> str:
    space = session["made"].action_space
    if not hasattr(space, "n"):
        return f"Answer with a text of at most {space.max_length} characters and nothing else."
    numbers = range(int(space.start), int(space.start + space.n))
    names = session["names"] if len(session["names"]) == len(numbers) else list(map(str, numbers))
    return f"Answer with one action and nothing else: {', '.join(names)}."


def _parse_action(action: str, space: Any, names: Sequence[str]) -> Any:
    """The action that an answer names. Anything else is a `ValueError`, which the model reads."""
    if not hasattr(space, "n"):
        if len(action) > space.max_length or not space.contains(action):
            raise ValueError(f"an action is a text of {space.min_length} to {space.max_length} of its characters")
        return action
    word = action.strip().strip(".!*\"'`").casefold() if len(action) <= 100 else ""
    low, end = int(space.start), int(space.start + space.n)
    if word in names and len(names) == end - low:
        return low + list(names).index(word)
    if re.fullmatch(r"[0-9]{1,6}", word) and low <= int(word) < end:
        return int(word)
    offered = ", ".join(names) if names else f"{low} to {end - 1}"
    raise ValueError(f"answer with one action ({offered}) and nothing else")
