"""stable-baselines3's PPO over our environments: every agent is one of its environments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from benchmarks.summary import Json
from benchmarks.train.cases import Case, Epochs, environment, settings_of
from benchmarks.train.networks import OneHot
from velodrome.training.envs.interface import Spec, VectorEnv
from velodrome.training.network.policy import Policy


class Agents(VecEnv):
    """The least that a VecEnv has to do; an episode's figures are there without a monitor around each."""

    def __init__(self, env: VectorEnv) -> None:
        spec = env.spec
        seen = (
            Box(0, 255, spec.obs_shape, np.uint8)
            if spec.obs_dtype == "uint8"
            else Box(-np.inf, np.inf, spec.obs_shape, np.float32)
        )
        super().__init__(spec.total, seen, Discrete(spec.actions.width))
        self.env = env

    def reset(self) -> np.ndarray:
        self.env.reset(1)
        return self.env.obs.copy()

    def step_async(self, actions: np.ndarray) -> None:
        self.env.step(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        env = self.env
        done = env.terminals | env.truncations
        infos: list[dict[str, Any]] = [{}] * self.num_envs
        if done.any():
            ended = env.ended()
            report = zip(np.flatnonzero(done), ended.returns.tolist(), ended.lengths.tolist(), strict=False)
            for row, total, length in report:
                infos[row] = {
                    "terminal_observation": env.final_obs[row].copy(),
                    "TimeLimit.truncated": bool(env.truncations[row]),
                    "episode": {"r": total, "l": length},
                }
        return env.obs.copy(), env.rewards.copy(), done, infos

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class SameBody(BaseFeaturesExtractor):
    """Our encoder and core; it is given floats and has to make bytes of them again."""

    def __init__(self, observation_space: Box, case: Case, spec: Spec) -> None:
        policy = Policy(settings_of(case).policy, spec, torch.Generator().manual_seed(1))
        super().__init__(observation_space, policy.hidden)
        self.encoder, self.core = policy.encoder, policy.core

    def forward(self, obs: Tensor) -> Tensor:
        return torch.relu(self.core(torch.relu(self.encoder(obs.to(torch.uint8)))))


class WrittenBody(BaseFeaturesExtractor):
    """A one-hot and two linear layers."""

    def __init__(self, observation_space: Box, case: Case, spec: Spec) -> None:
        hidden = settings_of(case).policy.hidden
        super().__init__(observation_space, hidden)
        first = OneHot(spec)
        self.body = nn.Sequential(first, nn.Linear(first.size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.body(obs)
        return features


class Silent(BaseCallback):
    def _on_step(self) -> bool:
        return True


@contextmanager
def trainer(case: Case, variant: str) -> Iterator[Epochs]:
    """Its own policy for the cartpole, which is our network; for the hub, one of the two bodies."""
    args = settings_of(case)
    env = environment(case)
    body: Json = {
        "features_extractor_class": SameBody if variant == "same" else WrittenBody,
        "features_extractor_kwargs": {"case": case, "spec": env.spec},
        "net_arch": [],
    }
    model = PPO(
        "MlpPolicy",
        Agents(env),
        learning_rate=args.trainer.learning_rate,
        n_steps=case.horizon,
        batch_size=case.minibatch,
        n_epochs=args.ppo.update_epochs,
        gamma=args.trainer.gamma,
        gae_lambda=args.trainer.gae_lambda,
        clip_range=args.ppo.clip,
        ent_coef=args.ppo.entropy_coef,
        vf_coef=args.ppo.value_coef,
        max_grad_norm=args.trainer.max_grad_norm,
        policy_kwargs={} if case.env == "cartpole" else body,
        device="cpu",
        seed=1,
    )
    model.set_logger(Logger(None, []))
    first = True

    def epochs(count: int) -> None:
        nonlocal first
        model.learn(count * case.batch, callback=Silent(), reset_num_timesteps=first)
        first = False

    yield epochs
