"""What all trainers are given: the same environments, the same sizes, the same settings of PPO.

An epoch is one rollout and the updates made from it. A trainer is a function that runs so many epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.summary import Json
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.settings import (
    ActionSupervisedAndCriticConfig,
    EnvSettings,
    OutputSettings,
    PolicySettings,
    PPOSettings,
    RunSettings,
    TrainerSettings,
)

Epochs = Callable[[int], object]

LARGEST_BATCH = 16_384  # agent steps of an epoch
MOST_STEPS = 16
AGENTS_EACH = 4
LONGEST = 100_000  # no episode of the hub is cut off inside a measurement: they would all be in the same step
CARTPOLES = 64
MINIBATCHES = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One environment at one size."""

    env: str  # "hub" or "cartpole"
    agents: int

    @property
    def name(self) -> str:
        return f"{self.env} {self.agents}"

    @property
    def batch(self) -> int:
        """Agent steps of an epoch."""
        return self.horizon * self.agents

    @property
    def horizon(self) -> int:
        """Steps of a rollout."""
        return max(1, min(MOST_STEPS, LARGEST_BATCH // self.agents))

    @property
    def minibatch(self) -> int:
        return self.batch // MINIBATCHES


CASES = (*(Case("hub", agents) for agents in (64, 256, 1024, 4096)), Case("cartpole", CARTPOLES))


def case_named(name: str) -> Case:
    env, agents = name.split()
    return Case(env, int(agents))


def settings_of(case: Case, *, supervised: bool = False, folder: str = "train_dir") -> RunSettings:
    """Ours. What the others are told is read from here."""
    hub = case.env == "hub"
    return RunSettings(
        env=EnvSettings(
            name="extractor_hub_30" if hub else "gymnasium:CartPole-v1",
            num_envs=case.agents // AGENTS_EACH if hub else case.agents,
            agents=AGENTS_EACH if hub else 1,
            max_steps=LONGEST,
        ),
        policy=PolicySettings(hidden=128 if hub else 64),
        supervised=ActionSupervisedAndCriticConfig(steps=10**9 if supervised else 0),
        ppo=PPOSettings(value_clip=0.0),
        trainer=TrainerSettings(
            total_timesteps=2 * 10**9, batch_size=case.batch, minibatch_size=case.minibatch, device="cpu", threads=1
        ),
        output=OutputSettings(train_dir=folder, dashboard=False),
    )


def environment(case: Case) -> VectorEnv:
    """The environments, starts."""
    return make_env(settings_of(case).env, seed=1)


def measured(epochs: Epochs, steps: int, seconds: float) -> Json:
    """Agent steps per second of CPU and of the wall, over about so many seconds; a warm-up is not counted."""
    epochs(1)
    count, cpu = 1, 0.0
    while cpu < 0.8 * seconds:  # one epoch to see how long it takes, then as many as fit, unless that was enough
        count = max(1, round(count * seconds / cpu)) if cpu else 1
        before, wall = time.process_time(), time.perf_counter()
        epochs(count)
        cpu, wall = time.process_time() - before, time.perf_counter() - wall
    return {"per_cpu_s": count * steps / cpu, "per_s": count * steps / wall, "epochs": count}
