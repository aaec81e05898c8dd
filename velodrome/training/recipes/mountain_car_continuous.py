"""A car that has to swing out of a valley: the reward is at the top, and nothing before it shows the way."""

from __future__ import annotations

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


def mountain_car_continuous() -> RunSettings:
    """MountainCarContinuous-v0 through Gymnasium: each action is taken four times, so that chance reaches the top."""
    return RunSettings(
        run="mountain_car_continuous",
        env=EnvSettings(name="gymnasium:MountainCarContinuous-v0", num_envs=16, action_repeat=4),
        policy=PolicySettings(hidden=64, normalize_obs=True),
        ppo=PPOSettings(entropy_coef=0.0, update_epochs=10),
        trainer=TrainerSettings(
            total_timesteps=40_000,
            learning_rate=1e-3,
            anneal_lr=True,
            batch_size=2048,
            minibatch_size=128,
            normalize_rewards=True,
        ),
        evaluator=EvaluatorConfig(epoch_interval=10, episodes=100),
    )
