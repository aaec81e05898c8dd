"""What stable-baselines3 and CleanRL call a setting, and ours: a suggestion for an unknown key."""

from __future__ import annotations

_PER_ROLLOUT = "trainer.batch_size (agent steps per rollout, of all environments)"
ELSEWHERE = {
    "batch_size": "trainer.minibatch_size (agent steps per gradient) or trainer.batch_size (per rollout)",
    "clip_coef": "ppo.clip",
    "clip_range": "ppo.clip",
    "clip_range_vf": "ppo.value_clip",
    "clip_vloss": "ppo.value_clip",
    "cuda": "trainer.device",
    "ent_coef": "ppo.entropy_coef",
    "env_id": "env.name",
    "eval_freq": "evaluator.epoch_interval",
    "exp_name": "run",
    "lr": "trainer.learning_rate",
    "n_envs": "env.num_envs",
    "n_epochs": "ppo.update_epochs",
    "n_eval_episodes": "evaluator.episodes",
    "n_steps": _PER_ROLLOUT,
    "norm_adv": "ppo.normalize_advantages",
    "num_minibatches": "trainer.minibatch_size (trainer.batch_size / num_minibatches)",
    "num_steps": _PER_ROLLOUT,
    "num_timesteps": "trainer.total_timesteps",
    "save_freq": "trainer.checkpoint_interval",
    "tensorboard_log": "output.tensorboard",
    "total_steps": "trainer.total_timesteps",
    "verbose": "output.dashboard",
    "vf_coef": "ppo.value_coef",
}
