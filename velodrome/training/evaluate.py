"""How good a policy is: whole episodes in environments of its own, apart from training and from its clock.

Each environment's first episode counts and no other, so that short episodes are not counted more often than long ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from velodrome.errors import InputError
from velodrome.timing.report import counted
from velodrome.training.envs.interface import Array, Spec, Teacher, VectorEnv
from velodrome.training.envs.make import make_env, make_teacher
from velodrome.training.policy import Policy, greedy, sample
from velodrome.training.random_streams import stream, stream_seed
from velodrome.training.settings import RunSettings

Json = dict[str, Any]
Stop = Callable[[], bool]

MOST_STEPS = 100_000  # of an episode
AT_ONCE = 256  # episodes


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Returns of episodes, the mean over their agents; how often the actor did as the teacher would have."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    agreement: float | None
    unfinished: int = 0  # episodes that had no end in sight after `MOST_STEPS`, counted as far as they got

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def error(self) -> float:
        """Of the mean: one standard error."""
        return float(np.std(self.returns, ddof=1) / sqrt(len(self.returns))) if len(self.returns) > 1 else 0.0

    def as_json(self) -> Json:
        told: Json = {
            "episodes": len(self.returns),
            "mean_return": self.mean_return,
            "mean_length": float(np.mean(self.lengths)),
        }
        if len(self.returns) > 1:
            told["standard_error"] = self.error
        if self.unfinished:
            told["unfinished"] = self.unfinished
        return told if self.agreement is None else {**told, "agreement": self.agreement}


class Actor(Protocol):
    """Whoever acts for all agents at once."""

    def act(self, obs_N: Array, begun_N: NDArray[np.bool_]) -> NDArray[np.int64]: ...


class Student:
    """A policy as an actor: its likeliest action, or one drawn from a stream of its own."""

    def __init__(self, policy: Policy, device: torch.device, drawn: torch.Generator | None = None) -> None:
        self._policy = policy
        self._device = device
        self._drawn = drawn
        self._state: torch.Tensor | None = None

    @torch.no_grad()
    def act(self, obs_N: Array, begun_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        if begun_N.all():
            self._state = self._policy.initial_state(len(obs_N))
        begun = torch.from_numpy(begun_N).to(self._device)
        logits_NA, _, self._state = self._policy(torch.from_numpy(obs_N).to(self._device), self._state, begun)
        actions_N = greedy(logits_NA) if self._drawn is None else sample(logits_NA, self._drawn)[0]
        return actions_N.cpu().numpy()


class Guide:
    """The teacher as an actor."""

    def __init__(self, teacher: Teacher, spec: Spec) -> None:
        self._teacher = teacher
        self._shape = (spec.num_envs, spec.agents)
        self._said_EA: NDArray[np.int64] = np.zeros(self._shape, np.int64)

    def act(self, obs_N: Array, begun_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        obs_EA = obs_N.reshape(*self._shape, *obs_N.shape[1:])
        self._teacher.ask(obs_EA, begun_N.reshape(self._shape)[:, 0], self._said_EA)
        return self._said_EA.reshape(-1)


class Dice:
    """Any action, each as likely."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self._spec = spec
        self._drawn = np.random.default_rng(seed)

    def act(self, obs_N: Array, begun_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        return self._drawn.integers(0, self._spec.num_actions, len(obs_N))


class Stopped(Exception):
    """Somebody asked to stop in the middle of an evaluation."""


def _never() -> bool:
    return False


def evaluate(
    settings: RunSettings, policy: Policy, device: torch.device, *, step: int, episodes: int, stop: Stop = _never
) -> Json:
    """The student after so many steps, on layouts that training never sees: alone, then where the teacher leads."""
    drawn = None if settings.evaluator.greedy else stream(settings.seed, "evaluation/actions", step, device)
    alone = played(settings, Student(policy, device, drawn), episodes=episodes, stop=stop)
    told = {**alone.as_json(), "greedy": settings.evaluator.greedy}
    if alone.agreement is not None:
        led = played(settings, Student(policy, device), episodes=episodes, led=True, stop=stop)
        told |= {"agreement": led.agreement, "agreement_alone": alone.agreement}
    return told


def evaluation_line(found: Json) -> str:
    """An evaluation in a few words."""
    words = f"return {found['mean_return']:.2f}"
    words += f" (standard error {found['standard_error']:.2f})" if "standard_error" in found else ""
    words += f" over {counted(found['episodes'], 'episode')}{'' if found['greedy'] else ', actions drawn'}"
    words += f", {found['unfinished']} without an end after {MOST_STEPS:,} steps" if "unfinished" in found else ""
    return words + (f", agreement {found['agreement']:.1%}" if "agreement" in found else "")


def played(
    settings: RunSettings, actor: Actor | None, *, episodes: int, led: bool = False, stop: Stop = _never
) -> Evaluation:
    """Episodes of any actor (None: the teacher), the same for all. `led`: the teacher's actions are taken."""
    parts = []
    for first in range(0, episodes, AT_ONCE):
        given = settings.env.model_copy(update={"num_envs": min(episodes - first, AT_ONCE)})
        env = make_env(given, stream_seed(settings.seed, "evaluation", first) % 2**31)
        try:
            teacher = make_teacher(given, env)
            guide = None if teacher is None else Guide(teacher, env.spec)
            if actor is None and guide is None:
                raise InputError(f"{settings.env.name}: has no teacher")
            parts.append(_first_episodes(env, actor, guide, led=led, stop=stop))
        finally:
            env.close()
    steps = sum(part.steps for part in parts)
    alike = None if parts[0].agreement is None else sum((part.agreement or 0.0) * part.steps for part in parts) / steps
    returns, lengths = ([each for part in parts for each in getattr(part, name)] for name in ("returns", "lengths"))
    return Evaluation(tuple(returns), tuple(lengths), alike, sum(part.unfinished for part in parts))


def _first_episodes(env: VectorEnv, actor: Actor | None, guide: Guide | None, *, led: bool, stop: Stop) -> Evaluation:
    spec = env.spec
    begun_N = np.ones(spec.total, np.bool_)
    returns_E = np.zeros(spec.num_envs)
    lengths_E = np.zeros(spec.num_envs, np.int64)
    playing_E = np.ones(spec.num_envs, np.bool_)
    alike, asked = 0, 0
    for _ in range(MOST_STEPS):
        if stop():
            raise Stopped
        said_N = guide.act(env.obs, begun_N) if guide else None
        actions_N = actor.act(env.obs, begun_N) if actor else said_N
        assert actions_N is not None
        if said_N is not None:
            counted_N = np.repeat(playing_E, spec.agents)
            alike += int((actions_N == said_N)[counted_N].sum())
            asked += int(counted_N.sum())
        env.step(said_N if led and said_N is not None else actions_N)
        begun_N = env.terminals | env.truncations
        returns_E[playing_E] += env.rewards.reshape(spec.num_envs, spec.agents).mean(1)[playing_E]
        lengths_E[playing_E] += 1
        playing_E &= ~begun_N.reshape(spec.num_envs, spec.agents)[:, 0]
        if not playing_E.any():
            break
    agreement = alike / asked if asked and actor else None
    return Evaluation(tuple(returns_E.tolist()), tuple(lengths_E.tolist()), agreement, int(playing_E.sum()))
