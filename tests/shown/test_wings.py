"""The core works without its wings: a copy of the package from which their folders are deleted still collects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import velodrome
from tests.support.patience import DEADLINE_S
from tests.test_layers import PACKAGE, wings

pytestmark = pytest.mark.slow
COLLECT = "from velodrome.cli.main import main; import velodrome, sys; print(velodrome.__file__); sys.exit(main())"


def test_a_copy_of_the_package_without_its_wings_collects(tmp_path: Path):
    shutil.copytree(PACKAGE, tmp_path / "velodrome", ignore=shutil.ignore_patterns("__pycache__"))
    for wing in wings():
        shutil.rmtree(tmp_path / "velodrome" / wing)
    ended = subprocess.run(
        [sys.executable, "-c", COLLECT, "collect", "calculator", "scripted_model", "-o", "rollouts.jsonl"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr.count("Traceback")) == (0, 0), ended.stderr
    assert str(tmp_path / "velodrome" / "__init__.py") in ended.stdout
    kept = [row.reward for row in velodrome.read(tmp_path / "rollouts.jsonl")]
    assert len(kept) == len((PACKAGE / "resources_servers/calculator/data/example.jsonl").read_text().splitlines())
