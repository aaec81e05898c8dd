"""The pole on a cart: the smallest thing PPO has to be able to do."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


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
        evaluator=EvaluatorConfig(epoch_interval=50),
    )
