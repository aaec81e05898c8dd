"""What an agent step costs as environments become more: the environment alone, the teacher alone, the whole loop.

python -m benchmarks.train.scaling SECONDS ENVS...
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import orjson
import torch

from benchmarks.summary import Json
from benchmarks.train import ours
from benchmarks.train.cases import AGENTS_EACH, Case, measured, settings_of
from velodrome.training.envs.make import make_env, make_teacher

DRAWN = 16  # steps of random actions, again and again
WARM_UP = 40  # steps: agents leave the hub


def cost_us(step: Callable[[], None], agents: int, seconds: float) -> float:
    """CPU microseconds of one agent's share of `step`."""
    step()
    began = time.process_time()
    count = 0
    while time.process_time() - began < seconds or count < 2:
        step()
        count += 1
    return 1e6 * (time.process_time() - began) / (count * agents)


def alone(envs: int, seconds: float) -> tuple[float, float]:
    """The environment led by its teacher, and the teacher."""
    settings = settings_of(Case("hub", envs * AGENTS_EACH)).env
    env = make_env(settings, seed=1)
    teacher = make_teacher(settings, env)
    assert teacher is not None
    actions_EA = np.zeros((envs, AGENTS_EACH), np.int64)
    seen_EA, starts_E = env.obs.reshape(envs, AGENTS_EACH, -1), np.ones(envs, np.bool_)
    for _ in range(WARM_UP):
        teacher.ask(seen_EA, starts_E, actions_EA)
        starts_E[:] = False
        env.step(actions_EA.reshape(-1))
    request = cost_us(lambda: teacher.ask(seen_EA, starts_E, actions_EA), env.spec.total, seconds)
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, env.spec.actions.width, (DRAWN, env.spec.total))
    turn = iter(range(sys.maxsize))
    stepped = cost_us(lambda: env.step(drawn[next(turn) % DRAWN]), env.spec.total, seconds)
    return stepped, request


def run(seconds: float, sizes: list[int]) -> Json:
    torch.set_num_threads(1)
    result = {}
    for envs in sizes:
        stepped, request = alone(envs, seconds)
        case = Case("hub", envs * AGENTS_EACH)
        with ours.trainer(case, "") as epochs:
            loop = 1e6 / measured(epochs, case.batch, seconds)["per_cpu_s"]
        result[str(envs)] = {"environment_us": stepped, "teacher_us": request, "loop_us": loop}
    return result


if __name__ == "__main__":
    print(orjson.dumps(run(float(sys.argv[1]), [int(each) for each in sys.argv[2:]])).decode())
