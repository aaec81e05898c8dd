"""A lander between two flags."""

from __future__ import annotations

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


def lunar_lander() -> RunSettings:
    """LunarLander-v3 through Gymnasium (extra box2d)."""
    return RunSettings(
        run="lunar_lander",
        env=EnvSettings(name="gymnasium:LunarLander-v3", num_envs=16, action_repeat=4),
        policy=PolicySettings(hidden=64),
        ppo=PPOSettings(entropy_coef=0.005, update_epochs=10),
        trainer=TrainerSettings(
            total_timesteps=120_000,
            learning_rate=1e-3,
            anneal_lr=True,
            batch_size=1024,
            minibatch_size=128,
            normalize_rewards=True,
        ),
        evaluator=EvaluatorConfig(epoch_interval=10, episodes=100),
    )
