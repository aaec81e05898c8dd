"""Cooperation in `extractor_hub`: the scripted teacher first, then reward."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)

_EPISODE = 256  # steps
_BATCH = 65_536  # agent steps
_EPISODES = 128  # of an evaluation
_ROLLOUTS = 10  # of the supervised phase, at least


def thinky_supervised_to_ppo(
    base_missions: Annotated[str, Field(description="the mission: extractor_hub_<size>")] = "extractor_hub_30",
    supervised_steps: Annotated[int, Field(ge=0, description="agent steps with the teacher")] = 2_000_000,
    num_envs: Annotated[int, Field(ge=1, le=65_536, description="environments stepped at once")] = 64,
    agents: Annotated[int, Field(ge=1, le=64, description="agents in each")] = 4,
) -> RunSettings:
    """A student is taught by the scripted teacher thinky, then continues alone with PPO.

    With 64 x 4 agents a rollout is a whole episode of all of them, 65,536 agent steps; a short supervised phase has
    shorter ones, ten of them.
    """
    kickstart_coef = 0.03 if supervised_steps else 0.0  # without the teacher, any environment
    batch = num_envs * agents * _rollout_steps(supervised_steps, num_envs * agents)
    evaluated = 2 * _EPISODES * _EPISODE * agents  # agent steps of an evaluation: no more than half of those trained
    return RunSettings(
        run="thinky",
        env=EnvSettings(name=base_missions, num_envs=num_envs, agents=agents),
        policy=PolicySettings(hidden=256),
        supervised=ActionSupervisedAndCriticConfig(steps=supervised_steps, kickstart_coef=kickstart_coef),
        ppo=PPOSettings(learning_rate=4.5e-4, entropy_coef=0.001, update_epochs=2),
        trainer=TrainerSettings(
            total_timesteps=6_000_000,
            batch_size=batch,
            minibatch_size=max(1, min(512, batch // 2)),
            learning_rate=1.5e-3,
            anneal_lr=True,
            normalize_rewards=True,
            checkpoint_interval=8,
        ),
        evaluator=EvaluatorConfig(epoch_interval=-(-2 * evaluated // batch), episodes=_EPISODES, greedy=False),
    )


def _rollout_steps(supervised_steps: int, agents: int) -> int:
    """Environment steps of a rollout."""
    most = min(_EPISODE, max(1, _BATCH // agents))
    return min(most, -(-supervised_steps // (_ROLLOUTS * agents))) if supervised_steps else most
