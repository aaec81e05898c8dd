"""PufferLib's trainer over our environments. Its advantages are ours to compute: the wheel's own want CUDA's runtime.

It draws whole stretches by priority rather than shuffling steps, and makes all advantages anew for every minibatch;
that is its algorithm and stays. What it prints is left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from numba import njit
from pufferlib import pufferl
from torch import Tensor, nn

from benchmarks.train.cases import Case, Epochs, environment, settings_of
from benchmarks.train.networks import network
from velodrome.training.envs.interface import VectorEnv


@njit(cache=True, nogil=True)
def _backwards(values, rewards, terminals, ratio, advantages, gamma, lam, rho_clip, c_clip):  # type: ignore[no-untyped-def]
    for row in range(values.shape[0]):
        last = np.float32(0)
        for t in range(values.shape[1] - 2, -1, -1):
            going = 1 - terminals[row, t + 1]
            rho, c = min(ratio[row, t], rho_clip), min(ratio[row, t], c_clip)
            delta = rho * (rewards[row, t + 1] + gamma * values[row, t + 1] * going - values[row, t])
            last = delta + gamma * lam * c * last * going
            advantages[row, t] = last


def advantage(
    values: Tensor, rewards: Tensor, terminals: Tensor, ratio: Tensor, advantages: Tensor, *more: float
) -> Tensor:
    arrays = (each.detach().numpy() for each in (values, rewards, terminals, ratio, advantages))
    _backwards(*arrays, *map(np.float32, more))
    return advantages


class Vec:
    """What its trainer asks of a vector environment."""

    def __init__(self, env: VectorEnv) -> None:
        spec = env.spec
        byte = spec.obs_dtype == "uint8"
        self.env = env
        self.num_agents = self.agents_per_batch = spec.total
        self.single_observation_space = (
            Box(0, 255, spec.obs_shape, np.uint8) if byte else Box(-np.inf, np.inf, spec.obs_shape, np.float32)
        )
        self.single_action_space = Discrete(spec.actions.width)
        self.action_space = self.single_action_space
        self._ids, self._mask = np.arange(spec.total), np.ones(spec.total, bool)

    def async_reset(self, seed: int) -> None:
        self.env.reset(seed)

    def recv(self) -> tuple[Any, ...]:
        env, report = self.env, []
        ended = env.ended()
        if len(ended.returns):
            report.append({"mean_return": float(ended.returns.mean())})
        return env.obs, env.rewards, env.terminals, env.truncations, None, report, self._ids, self._mask

    def send(self, actions: Any) -> None:
        self.env.step(actions)

    def close(self) -> None:
        self.env.close()


class Eval(nn.Module):
    """The names its trainer calls a network by."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, obs: Tensor, state: Any = None) -> tuple[Tensor, Tensor]:
        logits, values = self.inner(obs)
        return logits, values

    forward_eval = forward


def config(case: Case, folder: str) -> dict[str, Any]:
    args = settings_of(case)
    ours = {
        "batch_size": case.batch,
        "bptt_horizon": case.horizon,
        "minibatch_size": case.minibatch,
        "max_minibatch_size": case.minibatch,
        "update_epochs": args.ppo.update_epochs,
        "learning_rate": args.trainer.learning_rate,
        "gamma": args.trainer.gamma,
        "gae_lambda": args.trainer.gae_lambda,
        "clip_coef": args.ppo.clip,
        "vf_coef": args.ppo.value_coef,
        "ent_coef": args.ppo.entropy_coef,
        "max_grad_norm": args.trainer.max_grad_norm,
        "total_timesteps": args.trainer.total_timesteps,
    }
    return ours | {
        "torch_deterministic": True,
        "seed": 1,
        "device": "cpu",
        "cpu_offload": False,
        "use_rnn": False,
        "compile": False,
        "compile_mode": "default",
        "compile_fullgraph": False,
        "optimizer": "adam",
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "precision": "float32",
        "anneal_lr": False,
        "vf_clip_coef": 1e9,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "prio_alpha": 0.8,
        "prio_beta0": 0.2,
        "checkpoint_interval": 10**9,
        "data_dir": folder,
        "env": case.name,
    }


@contextmanager
def trainer(case: Case, variant: str) -> Iterator[Epochs]:
    """With one of the two networks."""
    pufferl.compute_puff_advantage = advantage
    pufferl._C_AVAILABLE = True
    pufferl.PuffeRL.print_dashboard = lambda self, *args, **kwargs: None
    env = environment(case)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        logger = SimpleNamespace(run_id="bench", log=lambda logs, step: None)
        model = pufferl.PuffeRL(config(case, folder), Vec(env), Eval(network(variant, case, env.spec)), logger)

        def epochs(count: int) -> None:
            for _ in range(count):
                model.evaluate()
                model.train()

        try:
            yield epochs
        finally:
            model.utilization.stop()
