"""`scripts/test_needs.py`: what is there is left alone, what can be installed is, and what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import DEADLINE_S

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "test_needs.py"
MISSING = (
    "no Chromium on the PATH; the trace viewer tests need one (apt-get install -y --no-install-recommends chromium)"
)
INSTALLING = "installing Chromium for the trace viewer tests (once, under a minute)\n"

as_root_on_debian = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/etc/debian_version").exists(), reason="only root on Debian may install"
)


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def needs(path: Path, ci: str = "") -> tuple[int, str]:
    """The script with nothing but this folder on its PATH: its exit code and what it says."""
    environ = {"PATH": str(path), "CI": ci}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environ, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_a_chromium_that_is_there_needs_no_word(tmp_path: Path, name: str) -> None:
    program(tmp_path, name, "exit 0")
    assert needs(tmp_path, ci="true") == (0, "")


def test_a_missing_one_is_said_and_is_a_failure_in_ci_only(tmp_path: Path) -> None:
    assert needs(tmp_path) == (0, f"{MISSING}\n")
    assert needs(tmp_path, ci="true") == (1, f"{MISSING}\n")


@as_root_on_debian
def test_it_is_installed_after_the_lists_of_packages_are_fetched(tmp_path: Path) -> None:
    made = f"printf '#!/bin/sh\\n' > {tmp_path}/chromium; /bin/chmod +x {tmp_path}/chromium"
    program(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/log; case "$1" in install) {made};; esac')

    assert needs(tmp_path, ci="true") == (0, INSTALLING)
    assert (tmp_path / "log").read_text() == "update\ninstall -y --no-install-recommends chromium\n"
    assert needs(tmp_path, ci="true") == (0, "")


@as_root_on_debian
def test_an_installation_that_fails_says_why(tmp_path: Path) -> None:
    program(tmp_path, "apt-get", 'case "$1" in install) echo "E: no such package" >&2; exit 100;; esac')
    why = f"{INSTALLING}{MISSING}; apt-get install -y --no-install-recommends chromium: E: no such package\n"

    assert needs(tmp_path) == (0, why)
    assert needs(tmp_path, ci="true") == (1, why)
