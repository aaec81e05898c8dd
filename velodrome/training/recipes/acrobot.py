"""Two links that swing up."""

from __future__ import annotations

from velodrome.training.settings import (
    EnvSettings,
    EvaluatorConfig,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)


def acrobot() -> RunSettings:
    """Acrobot-v1 through Gymnasium, by PPO alone."""
    return RunSettings(
        run="acrobot",
        env=EnvSettings(name="gymnasium:Acrobot-v1", num_envs=16),
        policy=PolicySettings(hidden=64),
        ppo=PPOSettings(entropy_coef=0.0),
        trainer=TrainerSettings(
            total_timesteps=150_000,
            learning_rate=1e-3,
            anneal_lr=True,
            batch_size=2048,
            minibatch_size=256,
            gae_lambda=0.94,
        ),
        evaluator=EvaluatorConfig(epoch_interval=25, episodes=100),
    )
