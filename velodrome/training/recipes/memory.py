"""A cue, a corridor of noise, a choice: what no policy without memory can do."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from velodrome.training.settings import EnvSettings, PolicySettings, PPOSettings, RunSettings, TrainerSettings


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
            gamma=0.99,
            gae_lambda=0.95,
        ),
    )
