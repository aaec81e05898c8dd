"""The supervised phase beside one whose teacher is asked environment by environment, in Python.

    python -m benchmarks.train.naive SECONDS AGENTS...

`naive teacher` changes only that. `naive loop` is the phase as one first writes it: that teacher, the network in plain
torch, `.item()` for every number.
"""

from __future__ import annotations

import sys
from typing import TextIO

import numpy as np
import orjson
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions.categorical import Categorical

from benchmarks.summary import Json
from benchmarks.train import cleanrl, ours
from benchmarks.train.cases import AGENTS_EACH, Case, measured, settings_of
from velodrome.training.envs.interface import Teacher, VectorEnv
from velodrome.training.envs.make import make_teacher


class OneByOne:
    """A teacher for each environment; what it sees is taken out, and what it says put together, one at a time."""

    def __init__(self, env: VectorEnv, case: Case) -> None:
        one = settings_of(case).env
        self.env = env
        self.device = torch.device("cpu")
        self.teachers = [_teacher(one, env) for _ in range(env.spec.num_envs)]
        self.teacher = self.teachers[0]  # the name a checkpoint would ask for
        self._begun = True

    def act(self, obs_N: object = None, starts_N: object = None, mask_NA: object = None) -> np.ndarray:
        obs_EA = torch.from_numpy(self.env.obs).view(len(self.teachers), AGENTS_EACH, -1)
        said = []
        for e, teacher in enumerate(self.teachers):
            seen = obs_EA[e].cpu().numpy()[None]
            actions_EA = np.zeros((1, AGENTS_EACH), np.int64)
            teacher.ask(seen, np.array([self._begun]), actions_EA)
            said.append(torch.from_numpy(actions_EA[0]).to(self.device))
        self._begun = False
        return torch.stack(said).flatten().numpy()


def _teacher(settings: object, env: VectorEnv) -> Teacher:
    from dataclasses import replace
    from types import SimpleNamespace

    result = make_teacher(settings, SimpleNamespace(spec=replace(env.spec, num_envs=1)))  # type: ignore[arg-type]
    assert result is not None
    return result


class NaiveLoop(cleanrl.Loop):
    """Supervised, with a critic; teacher and student lead half the environments each, as ours do."""

    def __init__(self, case: Case, log: TextIO) -> None:
        super().__init__(case, "written", log)
        self.teacher = OneByOne(self.env, case)
        self.taught = torch.zeros_like(self.actions)
        self.led = torch.arange(case.agents) < case.agents // 2

    def roll_out(self) -> None:
        for step in range(self.case.horizon):
            self.obs[step], self.dones[step] = self.next_obs, self.next_done
            with torch.no_grad():
                logits, self.values[step] = self.agent(self.next_obs)
                action = Categorical(logits=logits).sample()
            self.taught[step] = torch.from_numpy(self.teacher.act())
            self.env.step(torch.where(self.led, self.taught[step], action).numpy())
            self.rewards[step] = torch.tensor(self.env.rewards)
            self.next_obs = torch.tensor(self.env.obs)
            self.next_done = torch.tensor(np.logical_or(self.env.terminals, self.env.truncations), dtype=torch.float32)

    def learn(self, advantages: Tensor, returns: Tensor) -> dict[str, float]:
        args, size = self.given.supervised, self.case.minibatch
        b_obs, b_taught, b_returns = self.obs.flatten(0, 1), self.taught.flatten(), returns.flatten()
        np.random.shuffle(self.indices)
        report: dict[str, float] = {}
        for start in range(0, self.case.batch, size):
            rows = self.indices[start : start + size]
            logits, value = self.agent(b_obs[rows])
            cross_entropy = F.cross_entropy(logits, b_taught[rows])
            value_loss = F.mse_loss(value, b_returns[rows])
            loss = args.coef * cross_entropy + args.value_coef * value_loss
            self.optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.agent.parameters(), self.given.trainer.max_grad_norm)
            self.optimizer.step()
            agreement = (logits.argmax(1) == b_taught[rows]).float().mean()
            report = {"loss": loss.item(), "cross_entropy": cross_entropy.item(), "value_loss": value_loss.item()}
            report |= {"agreement": agreement.item(), "grad_norm": norm.item()}
        return report


def run(seconds: float, sizes: list[int]) -> Json:
    torch.set_num_threads(1)
    result: Json = {}
    for agents in sizes:
        case = Case("hub", agents)
        row = result[str(agents)] = {}
        for name in ("ours", "naive teacher"):
            with ours.begun(case, supervised=True) as run:
                if name != "ours":
                    run.teacher = OneByOne(run.env, case)  # type: ignore[assignment]
                row[name] = measured(lambda count: [ours.epoch(run) for _ in range(count)], case.batch, seconds)
        with open("/dev/null", "w", encoding="utf-8") as log:
            row["naive loop"] = measured(NaiveLoop(case, log).epochs, case.batch, seconds)
    return result


if __name__ == "__main__":
    print(orjson.dumps(run(float(sys.argv[1]), [int(each) for each in sys.argv[2:]])).decode())
