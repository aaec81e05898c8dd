"""`velo` as a user runs it: a process of its own, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def velo(cwd: Path, *words: str, python_path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The finished process."""
    more = {} if python_path is None else {"PYTHONPATH": str(python_path)}
    command = [sys.executable, "-m", "velodrome.cli.main", *words]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True)
