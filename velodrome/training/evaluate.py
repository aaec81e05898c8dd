"""Evaluation: whole episodes in environments that training does not use, outside its clock.

Only the first episode of each environment counts, so short episodes are not counted more often than long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from velodrome.timing.figures import counted
from velodrome.training.envs.interface import Array, VectorEnv
from velodrome.training.envs.make import make_env, make_teacher
from velodrome.training.network.distributions import bounded
from velodrome.training.network.policy import Policy
from velodrome.training.random_streams import stream, stream_seed
from velodrome.training.run.dashboard import never
from velodrome.training.settings import RunSettings
from velodrome.training.timed import TeacherActor

Json = dict[str, Any]
Stop = Callable[[], bool]

MOST_STEPS = 100_000  # of an episode
AT_ONCE = 256  # episodes


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Mean return per agent of each episode; how often the actor took the teacher's action."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    agreement: float | None
    unfinished: int = 0  # episodes without an end after `MOST_STEPS`, counted as far as they got

    @property
    def steps(self) -> int:
        return sum(self.lengths)

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.returns, ddof=1) / sqrt(len(self.returns))) if len(self.returns) > 1 else 0.0

    def as_json(self) -> Json:
        result: Json = {
            "episodes": len(self.returns),
            "mean_return": self.mean_return,
            "mean_length": float(np.mean(self.lengths)),
        }
        if len(self.returns) > 1:
            result["standard_error"] = self.error
        if self.unfinished:
            result["unfinished"] = self.unfinished
        return result if self.agreement is None else {**result, "agreement": self.agreement}


class Actor(Protocol):
    """Acts for all agents at once."""

    def act(self, obs_N: Array, starts_N: NDArray[np.bool_], mask_NA: NDArray[np.bool_] | None = None) -> Array: ...


@torch.no_grad()
def choose(
    policy: Policy,
    obs_N: torch.Tensor,
    state: torch.Tensor | None,
    starts_N: torch.Tensor,
    mask_NA: torch.Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The likeliest actions, or with a generator sampled ones; and the memory after them."""
    outputs_NO, _, state = policy(obs_N, state, starts_N)
    chosen = policy.distribution(outputs_NO, mask_NA)
    actions_N = chosen.mode() if generator is None else chosen.sample(generator)[0]
    return bounded(actions_N, policy.actions), state


class Student:
    """A policy as an actor: its likeliest action (greedy), or one sampled with `generator`."""

    def __init__(self, policy: Policy, device: torch.device, generator: torch.Generator | None = None) -> None:
        self._policy = policy
        self._device = device
        self._generator = generator
        self._state: torch.Tensor | None = None

    def act(self, obs_N: Array, starts_N: NDArray[np.bool_], mask_NA: NDArray[np.bool_] | None = None) -> Array:
        if starts_N.all():
            self._state = self._policy.initial_state(len(obs_N))
        obs, starts = (torch.from_numpy(each).to(self._device) for each in (obs_N, starts_N))
        mask = None if mask_NA is None else torch.from_numpy(mask_NA).to(self._device)
        actions_N, self._state = choose(self._policy, obs, self._state, starts, mask, self._generator)
        return actions_N.cpu().numpy()


class Stopped(Exception):
    """An evaluation was stopped."""


def evaluate(
    settings: RunSettings, policy: Policy, device: torch.device, *, step: int, episodes: int, stop: Stop = never
) -> Json:
    """The student on layouts that training never sees: acting itself, then where the teacher leads."""
    generator = evaluation_actions(settings, step, device)
    alone = play(settings, Student(policy, device, generator), episodes=episodes, stop=stop)
    greedy = settings.evaluator.greedy
    result = {**alone.as_json(), "greedy": greedy, "actions": "greedy" if greedy else "sampled"}
    if alone.agreement is not None:
        forced = play(settings, Student(policy, device), episodes=episodes, teacher_forced=True, stop=stop)
        result |= {"agreement": forced.agreement, "agreement_alone": alone.agreement}
    return result


def evaluation_actions(settings: RunSettings, step: int, device: torch.device) -> torch.Generator | None:
    """What sampled actions of an evaluation are drawn with; None if they are greedy."""
    return None if settings.evaluator.greedy else stream(settings.seed, "evaluation/actions", step, device)


def evaluation_line(result: Json) -> str:
    """An evaluation in one line."""
    words = f"evaluation, {'greedy' if result['greedy'] else 'sampled'}: return {result['mean_return']:.2f}"
    words += f" (standard error {result['standard_error']:.2f})" if "standard_error" in result else ""
    words += f" over {counted(result['episodes'], 'episode')}"
    words += f", {result['unfinished']} without an end after {MOST_STEPS:,} steps" if "unfinished" in result else ""
    return words + (f", agreement of the likeliest action {result['agreement']:.1%}" if "agreement" in result else "")


def layout_seed(settings: RunSettings, first: int) -> int:
    """The seed of the episodes from number `first` on that are played at once."""
    return stream_seed(settings.seed, "evaluation", first) % 2**31


@contextmanager
def layouts(settings: RunSettings, first: int, episodes: int) -> Iterator[tuple[VectorEnv, TeacherActor | None]]:
    """The environments of these episodes, at most `AT_ONCE`, and their teacher."""
    many = settings.env.model_copy(update={"num_envs": min(episodes - first, AT_ONCE)})
    with closing(make_env(many, layout_seed(settings, first))) as env:
        teacher = make_teacher(many, env)
        yield env, None if teacher is None else TeacherActor(teacher, env.spec)


def play(
    settings: RunSettings,
    actor: Actor,
    *,
    episodes: int,
    teacher_forced: bool = False,
    stop: Stop = never,
) -> Evaluation:
    """Episodes of any actor, on the same layouts. `teacher_forced`: the teacher's actions are taken."""
    parts = []
    for first in range(0, episodes, AT_ONCE):
        with layouts(settings, first, episodes) as (env, advisor):
            parts.append(_first_episodes(env, actor, advisor, teacher_forced=teacher_forced, stop=stop))
    steps = sum(part.steps for part in parts)
    agreement = (
        None if parts[0].agreement is None else sum((part.agreement or 0.0) * part.steps for part in parts) / steps
    )
    returns, lengths = ([each for part in parts for each in getattr(part, name)] for name in ("returns", "lengths"))
    return Evaluation(tuple(returns), tuple(lengths), agreement, sum(part.unfinished for part in parts))


def _first_episodes(
    env: VectorEnv, actor: Actor, advisor: TeacherActor | None, *, teacher_forced: bool, stop: Stop
) -> Evaluation:
    spec = env.spec
    starts_N = np.ones(spec.total, np.bool_)
    returns_E = np.zeros(spec.num_envs)
    lengths_E = np.zeros(spec.num_envs, np.int64)
    playing_E = np.ones(spec.num_envs, np.bool_)
    agreed, counted_actions = 0, 0
    for _ in range(MOST_STEPS):
        if stop():
            raise Stopped
        advised_N = advisor.act(env.obs, starts_N) if advisor else None
        actions_N = actor.act(env.obs, starts_N, env.action_mask)
        if advised_N is not None:
            playing_N = np.repeat(playing_E, spec.agents)
            agreed += int((actions_N == advised_N).reshape(spec.total, -1).all(1)[playing_N].sum())
            counted_actions += int(playing_N.sum())
        env.step(advised_N if teacher_forced and advised_N is not None else actions_N)
        starts_N = env.terminals | env.truncations
        returns_E[playing_E] += env.rewards.reshape(spec.num_envs, spec.agents).mean(1)[playing_E]
        lengths_E[playing_E] += 1
        playing_E &= ~starts_N.reshape(spec.num_envs, spec.agents).all(1)
        if not playing_E.any():
            break
    agreement = agreed / counted_actions if counted_actions else None
    return Evaluation(tuple(returns_E.tolist()), tuple(lengths_E.tolist()), agreement, int(playing_E.sum()))
