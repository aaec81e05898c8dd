"""PPO in one function, in the manner of CleanRL: torch's own distributions and optimiser, numbers taken by `.item()`.

Written from the algorithm. Like its model it takes an episode that was cut off for one that ended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical

from benchmarks.train.cases import Case, Epochs, environment, settings_of
from benchmarks.train.networks import network


@contextmanager
def trainer(case: Case, variant: str) -> Iterator[Epochs]:
    """With one of the two networks."""
    with open(os.devnull, "w", encoding="utf-8") as log:
        yield Loop(case, variant, log).epochs


class Loop:
    """Storage made once, then epoch after epoch."""

    def __init__(self, case: Case, variant: str, log: TextIO) -> None:
        args = settings_of(case)
        self.given, self.case, self.log = args, case, log
        self.env = environment(case)
        spec = self.env.spec
        torch.manual_seed(1)
        self.agent = network(variant, case, spec)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=args.trainer.learning_rate, eps=1e-5)
        shape = (case.horizon, spec.total)
        self.obs = torch.zeros((*shape, *spec.obs_shape), dtype=getattr(torch, spec.obs_dtype))
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.logprobs, self.rewards, self.dones, self.values = (torch.zeros(shape) for _ in range(4))
        self.next_obs = torch.tensor(self.env.obs)
        self.next_done = torch.zeros(spec.total)
        self.indices = np.arange(case.batch)

    def epochs(self, count: int) -> None:
        for _ in range(count):
            self.roll_out()
            advantages = self.advantages()
            report = self.learn(advantages, advantages + self.values)
            ended = self.env.ended()
            if len(ended.returns):
                report["mean_return"] = float(ended.returns.mean())
            self.log.write(json.dumps(report) + "\n")

    def roll_out(self) -> None:
        for step in range(self.case.horizon):
            self.obs[step] = self.next_obs
            self.dones[step] = self.next_done
            with torch.no_grad():
                logits, value = self.agent(self.next_obs)
                chosen = Categorical(logits=logits)
                action = chosen.sample()
                self.values[step] = value
                self.logprobs[step] = chosen.log_prob(action)
            self.actions[step] = action
            self.env.step(action.cpu().numpy())
            self.rewards[step] = torch.tensor(self.env.rewards)
            self.next_obs = torch.tensor(self.env.obs)
            self.next_done = torch.tensor(np.logical_or(self.env.terminals, self.env.truncations), dtype=torch.float32)

    @torch.no_grad()
    def advantages(self) -> torch.Tensor:
        trainer = self.given.trainer
        next_value = self.agent(self.next_obs)[1]
        advantages = torch.zeros_like(self.rewards)
        last = torch.zeros_like(next_value)
        for t in reversed(range(self.case.horizon)):
            going = 1.0 - (self.next_done if t == self.case.horizon - 1 else self.dones[t + 1])
            following = next_value if t == self.case.horizon - 1 else self.values[t + 1]
            delta = self.rewards[t] + trainer.gamma * following * going - self.values[t]
            advantages[t] = last = delta + trainer.gamma * trainer.gae_lambda * going * last
        return advantages

    def learn(self, advantages: torch.Tensor, returns: torch.Tensor) -> dict[str, float]:
        args, size = self.given.ppo, self.case.minibatch
        b_obs, b_actions, b_logprobs = self.obs.flatten(0, 1), self.actions.flatten(), self.logprobs.flatten()
        b_advantages, b_returns, b_values = advantages.flatten(), returns.flatten(), self.values.flatten()
        clipped = []
        for _ in range(args.update_epochs):
            np.random.shuffle(self.indices)
            for start in range(0, self.case.batch, size):
                rows = self.indices[start : start + size]
                logits, value = self.agent(b_obs[rows])
                chosen = Categorical(logits=logits)
                logratio = chosen.log_prob(b_actions[rows]) - b_logprobs[rows]
                ratio = logratio.exp()
                with torch.no_grad():
                    approx_kl = ((ratio - 1) - logratio).mean()
                    clipped.append(((ratio - 1.0).abs() > args.clip).float().mean().item())
                mb_advantages = b_advantages[rows]
                mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
                free = -mb_advantages * ratio
                held = -mb_advantages * torch.clamp(ratio, 1 - args.clip, 1 + args.clip)
                policy_loss = torch.max(free, held).mean()
                value_loss = ((value - b_returns[rows]) ** 2).mean()
                entropy = chosen.entropy().mean()
                loss = policy_loss - args.entropy_coef * entropy + args.value_coef * value_loss
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.agent.parameters(), self.given.trainer.max_grad_norm)
                self.optimizer.step()
        predicted, true = b_values.numpy(), b_returns.numpy()
        spread = np.var(true)
        return {
            "loss": loss.item(),
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "approx_kl": approx_kl.item(),
            "clip_fraction": float(np.mean(clipped)),
            "grad_norm": norm.item(),
            "explained_variance": float("nan") if spread == 0 else float(1 - np.var(true - predicted) / spread),
        }
