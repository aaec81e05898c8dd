"""Cached code is never older than the sources beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S

KERNEL = """
from beside import step
from velodrome.training.compiled import kernel

@kernel
def twice(x):
    return step(x) * 2

print(twice(1))
"""
BESIDE = """
from velodrome.training.compiled import inner

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
