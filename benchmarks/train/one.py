"""One trainer in a process of its own, one thread: `python -m benchmarks.train.one WAY VARIANT SECONDS CASE...`."""

from __future__ import annotations

import sys
from importlib import import_module

import orjson
import torch

from benchmarks.summary import Json
from benchmarks.train.cases import case_named, measured

MODULES = {"ours": "ours", "stable-baselines3": "baselines", "CleanRL-style": "cleanrl", "PufferLib": "puffer"}


def run(way: str, variant: str, seconds: float, cases: list[str]) -> Json:
    """Every case in turn."""
    torch.set_num_threads(1)
    make = import_module(f"benchmarks.train.{MODULES[way]}").trainer
    result = {}
    for name in cases:
        case = case_named(name)
        with make(case, variant) as epochs:
            result[name] = measured(epochs, case.batch, seconds)
    return result


if __name__ == "__main__":
    _, way, variant, seconds, *cases = sys.argv
    print(orjson.dumps(run(way, variant, float(seconds), cases)).decode())
