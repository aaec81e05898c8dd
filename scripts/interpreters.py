"""The Python interpreters of this machine: those on the PATH, and those of pyenv.

python scripts/interpreters.py            # one per line: version and path
python scripts/interpreters.py 3.12       # the path of the oldest one from 3.12 on, or exit code 1
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Version = tuple[int, int]

OLDEST: Version = (3, 11)  # what the package needs
NEWEST: Version = (3, 13)  # the newest that the suite is known to pass on


@cache
def interpreters() -> dict[Version, Path]:
    """The first interpreter of each version between the oldest and the newest that works."""
    found: dict[Version, Path] = {sys.version_info[:2]: Path(sys._base_executable)}
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        version = (OLDEST[0], minor)
        path = next(_candidates(version), None) if version not in found else None
        if path is not None:
            found[version] = path
    return dict(sorted(found.items()))


def _candidates(version: Version) -> Iterator[Path]:
    name = f"python{version[0]}.{version[1]}"
    on_path = shutil.which(name)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    paths = [Path(on_path)] if on_path else []
    paths += sorted(pyenv.glob(f"{version[0]}.{version[1]}.*/bin/{name}"))
    return (path for path in paths if _runs(path, version))


def _runs(path: Path, version: Version) -> bool:
    """Whether it is what its name says; a shim of pyenv may stand for a version that is not there."""
    ask = "import sys, venv, ssl; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([path, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.split() == [str(number) for number in version]


def at_least(version: Version) -> Path | None:
    """The oldest interpreter from this version on."""
    return next((path for found, path in interpreters().items() if found >= version), None)


def main() -> None:
    if len(sys.argv) > 1:
        major, minor = sys.argv[1].split(".")
        path = at_least((int(major), int(minor)))
        sys.exit(print(path) if path else 1)
    for version, path in interpreters().items():
        print(f"{version[0]}.{version[1]} {path}")


if __name__ == "__main__":
    main()
