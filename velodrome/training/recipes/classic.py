"""Tasks that PPO alone solves in seconds: Gymnasium's, and one that needs memory. docs/training.md has their curves."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from velodrome.training.assignments import apply
from velodrome.training.settings import RunSettings

_EVALUATED = 2 * 32 * 500  # twice the most agent steps of an evaluation of cartpole
_CONTROL: dict[str, Any] = {  # of continuous actions
    "ppo.update_epochs": 10,
    "trainer.minibatch_size": 128,
    "trainer.normalize_rewards": True,
    "evaluator.epoch_interval": 10,
}


def _by_ppo(run: str, env: str, more: dict[str, Any]) -> RunSettings:
    """What all have, and what one has besides."""
    common = {"env.num_envs": 16, "policy.hidden": 64, "ppo.entropy_coef": 0.0, "evaluator.episodes": 100}
    common |= {"trainer.learning_rate": 1e-3, "trainer.anneal_lr": True, "trainer.batch_size": 2048}
    return apply(RunSettings(run=run), {"env.name": env, **common, **more})


def acrobot() -> RunSettings:
    """Two links that swing up: Acrobot-v1 through Gymnasium."""
    more = {"trainer.total_timesteps": 150_000, "trainer.gae_lambda": 0.94, "evaluator.epoch_interval": 25}
    return _by_ppo("acrobot", "gymnasium:Acrobot-v1", more)


def cartpole(
    num_envs: Annotated[int, Field(ge=1, le=65_536, description="environments stepped at once")] = 8,
    steps: Annotated[int, Field(ge=1, description="agent steps of a rollout, in each environment")] = 128,
) -> RunSettings:
    """CartPole-v1 through Gymnasium, by PPO alone: no teacher."""
    batch = num_envs * steps
    more: dict[str, Any] = {
        "env.num_envs": num_envs,
        "trainer.total_timesteps": 200_000,
        "trainer.batch_size": batch,
        "trainer.minibatch_size": min(256, batch),
        "trainer.gamma": 0.98,
        "trainer.gae_lambda": 0.8,
        "evaluator.epoch_interval": max(50, -(-_EVALUATED // batch)),
        "evaluator.episodes": 32,
    }
    return _by_ppo("cartpole", "gymnasium:CartPole-v1", more)


def lunar_lander() -> RunSettings:
    """A lander between two flags: LunarLander-v3 through Gymnasium (extra box2d)."""
    more: dict[str, Any] = {
        "env.action_repeat": 4,
        "ppo.entropy_coef": 0.005,
        "ppo.update_epochs": 10,
        "trainer.total_timesteps": 120_000,
        "trainer.batch_size": 1024,
        "trainer.minibatch_size": 128,
        "trainer.normalize_rewards": True,
        "evaluator.epoch_interval": 30,
    }
    return _by_ppo("lunar_lander", "gymnasium:LunarLander-v3", more)


def memory(
    corridor: Annotated[int, Field(ge=1, le=1000, description="steps between the cue and the choice")] = 8,
) -> RunSettings:
    """Remember a cue until the choice at the end of a corridor, with an LSTM."""
    num_envs, episode = 64, corridor + 2
    more: dict[str, Any] = {
        "env.num_envs": num_envs,
        "policy.core": "lstm",
        "policy.critic": "shared",
        "ppo.entropy_coef": 0.01,
        "trainer.total_timesteps": 100_000,
        "trainer.learning_rate": 2e-3,
        "trainer.batch_size": num_envs * 2 * episode,
        "trainer.minibatch_size": num_envs * episode // 2,
        "trainer.bptt_horizon": episode,
        "evaluator.episodes": 32,
    }
    return _by_ppo("memory", f"memory:{corridor}", more)


def mountain_car_continuous() -> RunSettings:
    """MountainCarContinuous-v0 through Gymnasium: each action is taken four times, so that chance reaches the top."""
    more = {"env.action_repeat": 4, "policy.normalize_obs": True, "trainer.total_timesteps": 40_000}
    return _by_ppo("mountain_car_continuous", "gymnasium:MountainCarContinuous-v0", {**_CONTROL, **more})


def pendulum() -> RunSettings:
    """Pendulum-v1 through Gymnasium: continuous actions, rewards normalised."""
    more = {"trainer.total_timesteps": 100_000, "trainer.gamma": 0.95}
    return _by_ppo("pendulum", "gymnasium:Pendulum-v1", {**_CONTROL, **more})
