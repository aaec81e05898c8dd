"""One training, evaluated on its way: `python -m benchmarks.train.to_threshold WAY RECIPE SEED [--first]`.

Every so many steps 100 episodes are played with the likeliest actions, by the same rule for everybody: only once the
training's own episodes come near the threshold, and at the end. CPU seconds are those of training alone. With
`--first` training ends at the first evaluation that reaches the threshold.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import torch

from benchmarks.summary import Json
from benchmarks.train import ours
from velodrome.training import loop
from velodrome.training.cpu_settings import cpu_settings
from velodrome.training.evaluate import evaluate
from velodrome.training.recipes import find, resolve
from velodrome.training.run.session import make_session
from velodrome.training.run.warmup import warm_up

EPISODES = 100
RECENT = 5  # rollouts


@dataclass(frozen=True, slots=True)
class Task:
    """What counts as solved, and how often that is looked at."""

    threshold: float
    every: int  # steps of the environments
    near: float  # mean return of the training's own episodes from which on it is looked at


TASKS = {
    "cartpole": Task(475, 10_000, 400),
    "acrobot": Task(-100, 8_192, -130),
    "lunar_lander": Task(200, 32_768, 50),
    "pendulum": Task(-200, 16_384, -400),
    "mountain_car_continuous": Task(90, 16_384, 60),
    "memory": Task(0.95, 8_192, 0.6),
}

# PPO in rl-baselines3-zoo (hyperparams/ppo.yml); what it does not name is stable-baselines3's default.
ZOO: dict[str, Json] = {
    "acrobot": {
        "env": "Acrobot-v1",
        "normalize": True,
        "ppo": {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0},
    },
    "lunar_lander": {
        "env": "LunarLander-v3",
        "normalize": False,
        "ppo": {
            "n_steps": 1024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
        },
    },
}
ZOO_ENVS, ZOO_STEPS = 16, 1_000_000


@dataclass(slots=True)
class Watch:
    """Counts the CPU of training and evaluates when it is time."""

    task: Task
    evaluate: Callable[[], float]
    curve: list[tuple[int, float, float]] = field(default_factory=list)  # steps, CPU seconds, mean return
    cpu_s: float = 0.0
    due: int = 0
    began: float = 0.0

    def start(self) -> None:
        self.due = self.due or self.task.every
        self.began = time.process_time()

    def look(self, step: int, recent: float, *, last: bool = False) -> bool:
        """Whether the threshold has been reached, at any time."""
        self.cpu_s += time.process_time() - self.began
        if last or (step >= self.due and recent >= self.task.near):
            self.curve.append((step, self.cpu_s, self.evaluate()))
        if step >= self.due:
            self.due += self.task.every * ((step - self.due) // self.task.every + 1)
        self.began = time.process_time()
        return self.first() is not None

    def first(self) -> tuple[int, float, float] | None:
        return next((each for each in self.curve if each[2] >= self.task.threshold), None)

    def as_json(self) -> Json:
        return {"first": self.first(), "last": self.curve[-1] if self.curve else None, "curve": self.curve}


def ours_trained(recipe: str, seed: int, *, first: bool) -> Json:
    """Our recipe, by our loop."""
    with TemporaryDirectory(prefix="velodrome-bench-") as folder, cpu_settings(threads=1):
        values = {"seed": seed, "output.train_dir": folder, "output.dashboard": False, "trainer.device": "cpu"}
        settings = resolve(find(recipe), values).settings
        run = make_session(settings, Path(folder), lambda line: None)
        warm_up(run, loop.epoch)

        def greedy() -> float:
            result = evaluate(settings, run.policy, run.device, step=run.step, episodes=EPISODES)
            return float(result["mean_return"])

        watch, recent = Watch(TASKS[recipe], greedy), list[float]()
        watch.start()
        total, repeat = settings.trainer.total_timesteps, settings.env.action_repeat
        while run.step < total:
            line = ours.epoch(run)
            recent = [*recent, line["rollout_return"]][-RECENT:] if line["episodes"] else recent
            mean = float(np.mean(recent)) if recent else -np.inf
            if watch.look(run.step * repeat, mean, last=run.step >= total) and first:
                break
        run.close()
    return watch.as_json()


def zoo_trained(recipe: str, seed: int) -> Json:
    """stable-baselines3's PPO with the zoo's settings, until the threshold."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    zoo = ZOO[recipe]
    envs: Any = make_vec_env(zoo["env"], ZOO_ENVS, seed=seed)
    fresh: Any = make_vec_env(zoo["env"], EPISODES, seed=10_000 + seed)
    if zoo["normalize"]:
        envs = VecNormalize(envs, gamma=zoo["ppo"]["gamma"])
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
    model = PPO("MlpPolicy", envs, seed=seed, device="cpu", **zoo["ppo"])

    def greedy() -> float:
        if zoo["normalize"]:
            fresh.obs_rms = envs.obs_rms
        obs, returns_E, playing_E = fresh.reset(), np.zeros(EPISODES), np.ones(EPISODES, bool)
        while playing_E.any():
            obs, rewards_E, done_E, _ = fresh.step(model.predict(obs, deterministic=True)[0])
            returns_E[playing_E] += rewards_E[playing_E]
            playing_E &= ~done_E
        return float(returns_E.mean())

    watch = Watch(TASKS[recipe], greedy)

    class Look(BaseCallback):
        """Looks after every update."""

        reached = False

        def _on_training_start(self) -> None:
            watch.start()

        def _on_rollout_start(self) -> None:
            recent = [each["r"] for each in self.model.ep_info_buffer or ()]
            self.reached = watch.look(self.num_timesteps, float(np.mean(recent)) if recent else -np.inf)

        def _on_step(self) -> bool:
            return not self.reached

    model.learn(ZOO_STEPS, callback=Look())
    if watch.first() is None:
        watch.look(model.num_timesteps, -np.inf, last=True)
    return watch.as_json()


def run(way: str, recipe: str, seed: int, *, first: bool) -> Json:
    torch.set_num_threads(1)
    return ours_trained(recipe, seed, first=first) if way == "ours" else zoo_trained(recipe, seed)


if __name__ == "__main__":
    _, way, recipe, seed, *more = sys.argv
    print(orjson.dumps(run(way, recipe, int(seed), first="--first" in more)).decode())
