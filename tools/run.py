#!/usr/bin/env python3
"""Train by a recipe: `tools/run.py RECIPE key=value…`. The same program as `velo train`, of the tree it stands in."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the tree's own code, wherever it is started from."""
    sys.path[0] = str(ROOT)
    if find_spec("pydantic") is None:
        python = ".venv/bin/python tools/run.py"
        print(f"run.py: {sys.executable} has nothing installed; `make train-setup`, then {python} …", file=sys.stderr)
        return 2
    from velodrome.cli.main import main as velo

    return velo(["train", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
