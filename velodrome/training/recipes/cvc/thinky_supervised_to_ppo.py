"""Cooperation in `extractor_hub`: the scripted teacher first, then reward alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    EnvSettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


def thinky_supervised_to_ppo(
    base_missions: Annotated[str, Field(description="the mission: extractor_hub_<size>")] = "extractor_hub_30",
    supervised_steps: Annotated[int, Field(ge=0, description="agent steps with the teacher")] = 500_000,
    num_envs: Annotated[int, Field(ge=1, le=65_536, description="environments stepped at once")] = 16,
    agents: Annotated[int, Field(ge=1, le=64, description="agents in each")] = 4,
) -> RunSettings:
    """A student taught by the scripted teacher thinky, then going on alone with PPO.

    With 16 x 4 agents a rollout is 8 steps of all of them, 512 agent steps.
    """
    return RunSettings(
        run="thinky",
        env=EnvSettings(name=base_missions, num_envs=num_envs, agents=agents),
        supervised=ActionSupervisedAndCriticConfig(steps=supervised_steps),
        ppo=PPOSettings(learning_rate=1.5e-4, entropy_coef=0.001),
        trainer=TrainerSettings(total_timesteps=2_000_000, learning_rate=1.5e-3),
    )
