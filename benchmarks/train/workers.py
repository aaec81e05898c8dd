"""How much faster two worker processes step an environment that takes 1 ms per step.

python -m benchmarks.train.workers

In turns, so that other programs disturb both alike; the best round counts, which they disturb least. Exits with 1 if a
busy step gains less than the factor promised in docs/training.md.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing

import numpy as np
import orjson

from benchmarks.summary import Json
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings

STEP_S, ENVS, WORKERS = 0.001, 8, 2
ROUNDS, STEPS = 40, 12
LEAST = 1.7


def step_ms(env: VectorEnv) -> float:
    """Milliseconds of one step of all environments."""
    actions = np.zeros(ENVS, np.int64)
    began = time.perf_counter()
    for _ in range(STEPS):
        env.step(actions)
    return 1e3 * (time.perf_counter() - began) / STEPS


def compared(options: dict[str, float]) -> Json:
    """The best step of all environments in one process and in two, and the range of the factor over the rounds."""
    with ExitStack() as opened:
        one, many = (
            opened.enter_context(
                closing(
                    make_env(
                        EnvSettings(
                            name="gymnasium:benchmarks.train.slow_env:velodrome/Slow-v0",
                            num_envs=ENVS,
                            workers=workers,
                            options=options,
                        ),
                        seed=0,
                    )
                )
            )
            for workers in (0, WORKERS)
        )
        rounds = [(step_ms(one), step_ms(many)) for _ in range(ROUNDS)]
    factors = sorted(alone / together for alone, together in rounds)
    alone_ms, together_ms = (min(column) for column in zip(*rounds, strict=True))
    return {
        "one_process_ms": round(alone_ms, 3),
        "two_workers_ms": round(together_ms, 3),
        "factor": round(alone_ms / together_ms, 2),
        "factor_of_rounds": [round(factors[len(factors) * k // 10], 2) for k in (1, 5, 9)],  # 10%, median, 90%
    }


def main() -> None:
    result = {"busy": compared({"busy_s": STEP_S}), "asleep": compared({"sleep_s": STEP_S}), "nothing": compared({})}
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
    if result["busy"]["factor"] < LEAST:
        sys.exit(f"two workers are {result['busy']['factor']} times as fast; at least {LEAST} is promised")


if __name__ == "__main__":
    main()
