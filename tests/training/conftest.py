"""Runs to compare with, made once per session; kernels are compiled by one worker and loaded by the others."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.small_run import Reference
    from velodrome.training.loop import TrainingResult


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """A finished small run with core `mlp` or `lstm`. Read it or copy it; do not change it."""
    from tests.support.small_run import trained

    made: dict[str, TrainingResult] = {}
    base: Path = tmp_path_factory.mktemp("reference")
    shared = tmp_path_factory.getbasetemp().parent / "kernels.lock"

    def run(core: str = "mlp") -> TrainingResult:
        if core not in made:
            with shared.open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                made[core] = trained(base / core, policy__core=core)
        return made[core]

    return run


@pytest.fixture(scope="session", autouse=True)
def compiled(reference: Reference) -> None:
    """Kernels are compiled and cached."""
    reference("mlp")
    reference("lstm")
