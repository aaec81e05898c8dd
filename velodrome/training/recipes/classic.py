"""Tasks that PPO alone solves in seconds: Gymnasium's, and one that needs memory. docs/training.md has their curves."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)

_EVALUATED = 2 * 32 * 500  # twice the most agent steps of an evaluation of cartpole


def _by_ppo(
    run: str, env: EnvSettings, *, epoch_interval: int, ppo: dict[str, Any], normalize_obs: bool = False, **trainer: Any
) -> RunSettings:
    common = {"learning_rate": 1e-3, "anneal_lr": True, "batch_size": 2048}
    return RunSettings(
        run=run,
        env=env,
        policy=PolicySettings(hidden=64, normalize_obs=normalize_obs),
        ppo=PPOSettings(**{"entropy_coef": 0.0, **ppo}),
        trainer=TrainerSettings(**{**common, **trainer}),
        evaluator=EvaluatorConfig(epoch_interval=epoch_interval, episodes=100),
    )


def acrobot() -> RunSettings:
    """Two links that swing up: Acrobot-v1 through Gymnasium."""
    env = EnvSettings(name="gymnasium:Acrobot-v1", num_envs=16)
    more: dict[str, Any] = {"total_timesteps": 150_000, "minibatch_size": 256, "gae_lambda": 0.94}
    return _by_ppo("acrobot", env, epoch_interval=25, ppo={}, **more)


def cartpole(
    num_envs: Annotated[int, Field(ge=1, le=65_536, description="environments stepped at once")] = 8,
    steps: Annotated[int, Field(ge=1, description="agent steps of a rollout, in each environment")] = 128,
) -> RunSettings:
    """CartPole-v1 through Gymnasium, by PPO alone: no teacher."""
    return RunSettings(
        run="cartpole",
        env=EnvSettings(name="gymnasium:CartPole-v1", num_envs=num_envs),
        policy=PolicySettings(hidden=64),
        ppo=PPOSettings(entropy_coef=0.0),
        trainer=TrainerSettings(
            total_timesteps=200_000,
            learning_rate=1e-3,
            batch_size=num_envs * steps,
            minibatch_size=min(256, num_envs * steps),
            anneal_lr=True,
            gamma=0.98,
            gae_lambda=0.8,
        ),
        evaluator=EvaluatorConfig(epoch_interval=max(50, -(-_EVALUATED // (num_envs * steps)))),
    )


def lunar_lander() -> RunSettings:
    """A lander between two flags: LunarLander-v3 through Gymnasium (extra box2d)."""
    env = EnvSettings(name="gymnasium:LunarLander-v3", num_envs=16, action_repeat=4)
    more: dict[str, Any] = {"total_timesteps": 120_000, "batch_size": 1024, "minibatch_size": 128}
    ppo = {"entropy_coef": 0.005, "update_epochs": 10}
    return _by_ppo("lunar_lander", env, epoch_interval=30, ppo=ppo, normalize_rewards=True, **more)


def memory(
    corridor: Annotated[int, Field(ge=1, le=1000, description="steps between the cue and the choice")] = 8,
) -> RunSettings:
    """Remember a cue until the choice at the end of a corridor, with an LSTM."""
    num_envs, episode = 64, corridor + 2
    return RunSettings(
        run="memory",
        env=EnvSettings(name=f"memory:{corridor}", num_envs=num_envs),
        policy=PolicySettings(core="lstm", hidden=64, critic="shared"),
        ppo=PPOSettings(entropy_coef=0.01),
        trainer=TrainerSettings(
            total_timesteps=100_000,
            learning_rate=2e-3,
            anneal_lr=True,
            batch_size=num_envs * 2 * episode,
            minibatch_size=num_envs * episode // 2,
            bptt_horizon=episode,
        ),
    )


def mountain_car_continuous() -> RunSettings:
    """MountainCarContinuous-v0 through Gymnasium: each action is taken four times, so that chance reaches the top."""
    env = EnvSettings(name="gymnasium:MountainCarContinuous-v0", num_envs=16, action_repeat=4)
    more: dict[str, Any] = {"total_timesteps": 40_000, "minibatch_size": 128, "normalize_rewards": True}
    ppo = {"update_epochs": 10}
    return _by_ppo("mountain_car_continuous", env, epoch_interval=10, ppo=ppo, normalize_obs=True, **more)


def pendulum() -> RunSettings:
    """Pendulum-v1 through Gymnasium: continuous actions, rewards normalised."""
    env = EnvSettings(name="gymnasium:Pendulum-v1", num_envs=16)
    more: dict[str, Any] = {"total_timesteps": 100_000, "minibatch_size": 128, "gamma": 0.95, "normalize_rewards": True}
    return _by_ppo("pendulum", env, epoch_interval=10, ppo={"update_epochs": 10}, **more)
