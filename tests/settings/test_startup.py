"""Importing the configuration is light; Hydra is loaded only to read a command line."""

from __future__ import annotations

import subprocess
import sys

import velodrome.settings


def test_hydra_and_omegaconf_are_not_loaded_by_importing_or_by_a_load_without_overrides(tmp_path):
    code = (
        "import sys; from velodrome.settings import load; load([]); "
        "print([name for name in ('hydra', 'omegaconf', 'antlr4') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": ":".join(sys.path)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == "[]\n"


def test_the_public_names_are_these():
    assert velodrome.settings.__all__ == [
        "KINDS",
        "Config",
        "Instance",
        "find_file",
        "hint",
        "is_secret_key",
        "load",
        "mask",
        "mask_text",
        "nearest",
        "secrets",
    ]
