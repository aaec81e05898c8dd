"""Cached code is never older than the sources beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

from velodrome.training.kernels.compiled import kernel

KERNEL = """
from beside import step
from velodrome.training.kernels.compiled import kernel

@kernel
def twice(x):
    return step(x) * 2

print(twice(1))
"""
BESIDE = """
from velodrome.training.kernels.compiled import inner

@inner
def step(x):
    return x + {more}
"""


@pytest.mark.slow
def test_a_change_in_the_file_beside_a_kernel_is_seen(tmp_path: Path):
    (tmp_path / "main.py").write_text(KERNEL)
    results = []
    for more in (1, 10):
        (tmp_path / "beside.py").write_text(BESIDE.format(more=more))
        done = subprocess.run(
            [sys.executable, "-B", "main.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        kept = sorted(path.parent.parent.name for path in tmp_path.rglob("*.nbi"))
        results.append((done.stdout.strip(), len(kept)))
    assert results == [("4", 1), ("22", 2)]


def test_a_kernel_that_cannot_be_cached_is_compiled():
    names: dict[str, Any] = {}
    exec("def twice(x):\n    return x * 2", names)  # in no file, so numba has nowhere to cache it
    assert kernel(names["twice"])(21) == 42
