"""A pendulum that is swung up and held: the smallest task with continuous actions."""

from __future__ import annotations

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


def pendulum() -> RunSettings:
    """Pendulum-v1 through Gymnasium: continuous actions, rewards normalised."""
    return RunSettings(
        run="pendulum",
        env=EnvSettings(name="gymnasium:Pendulum-v1", num_envs=16),
        policy=PolicySettings(hidden=64),
        ppo=PPOSettings(entropy_coef=0.0, update_epochs=10),
        trainer=TrainerSettings(
            total_timesteps=100_000,
            learning_rate=1e-3,
            anneal_lr=True,
            batch_size=2048,
            minibatch_size=128,
            gamma=0.95,
            normalize_rewards=True,
        ),
        evaluator=EvaluatorConfig(epoch_interval=10, episodes=100),
    )
