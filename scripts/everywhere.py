"""Run tests on the other Python interpreters of this machine, each in an environment below `.interop`.

    python scripts/everywhere.py [ARG…]    # ARG are pytest's

The environments have what `make quick` needs: no torch. An interpreter that is not here is named.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from interpreters import NEWEST, OLDEST, interpreters

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".interop"  # not VELODROME_INTEROP: the package is installed from this checkout
EXTRAS = "local,math,parquet,dev"


def environment(version: str, interpreter: Path) -> Path:
    """The interpreter of an environment with the package, made unless it is there."""
    folder = HOME / f"python{version}"
    needs = [(ROOT / name).read_text() for name in ("pyproject.toml", "lock.txt")]
    recipe = hashlib.sha256(repr([str(interpreter), EXTRAS, *needs]).encode()).hexdigest()
    stamp = folder / "recipe"
    if not stamp.exists() or stamp.read_text() != recipe:
        _say(f"Python {version}: installing {EXTRAS} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
        uv = [Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--python", folder]
        subprocess.run([*uv, "-c", "lock.txt", "-e", f".[{EXTRAS}]"], cwd=ROOT, check=True)
        stamp.write_text(recipe)
    return folder / "bin" / "python"


def main() -> int:
    """1 if a test failed on some interpreter."""
    known, failed = interpreters(), False
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        version = f"{OLDEST[0]}.{minor}"
        interpreter = known.get((OLDEST[0], minor))
        if interpreter is None:
            _say(f"Python {version}: not here")
        elif (OLDEST[0], minor) != sys.version_info[:2]:
            python = environment(version, interpreter)
            _say(f"Python {version}: the logic of every part")
            failed |= bool(subprocess.run([python, "-m", "pytest", *sys.argv[1:]], cwd=ROOT).returncode)
    return int(failed)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
