"""The suite on the other Python interpreters of this machine, each in an environment of its own below `.interop`.

    python scripts/everywhere.py           # the whole suite; torch comes as the registry has it: 6 GB each
    python scripts/everywhere.py --quick   # the tests of each part, without torch and what needs it

Other arguments are pytest's. An interpreter that is not here is named.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from interpreters import NEWEST, OLDEST, interpreters
from test_needs import compiler, headers

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".interop"  # not VELODROME_INTEROP: the package is installed from this checkout


@dataclass(frozen=True)
class Part:
    """Which tests run, and what they need."""

    title: str
    suffix: str
    extras: str
    packages: tuple[str, ...]  # beside them
    arguments: tuple[str, ...]


WHOLE = Part(
    "the whole suite",
    "-whole",
    "local,math,parquet,dev,consumers,train,tensorboard,wandb,sweep,onnx,video,bench,mettagrid,box2d,pettingzoo",
    ("pip",),
    (),
)
QUICK = Part(
    "the tests of each part, without torch (make everywhere runs all)",
    "",
    "local,math,parquet,dev",
    ("pip", "datasets>=4"),
    (
        *("-m", "not slow"),
        *(f"--ignore=tests/{path}" for path in ("shown", "training", "interop", "docs/test_run_pages.py")),
        "--deselect=tests/docs/test_generated.py::test_a_page_is_what_the_script_writes[api.md]",  # imports policies
    ),
)


def environment(version: str, interpreter: Path, part: Part) -> Path:
    """The interpreter of an environment with the package and the extras of the part, made unless it is there."""
    folder = HOME / f"python{version}{part.suffix}"
    compiles = compiler() and headers(interpreter)  # else the tests of reasoning_gym say why they skip
    extras = f"{part.extras},reasoning-gym" if compiles else part.extras
    needs = [(ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt")]
    recipe = hashlib.sha256(repr([str(interpreter), extras, part.packages, *needs]).encode()).hexdigest()
    stamp = folder / "recipe"
    if not stamp.exists() or stamp.read_text() != recipe:
        _say(f"Python {version}: installing {extras} (once)")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
        uv = [Path(sys.executable).with_name("uv"), "pip", "install", "-q", "--python", folder]
        subprocess.run([*uv, "-c", "constraints.txt", *part.packages, "-e", f".[{extras}]"], cwd=ROOT, check=True)
        stamp.write_text(recipe)
    return folder / "bin" / "python"


def main() -> int:
    """1 if a test failed on some interpreter."""
    part = QUICK if "--quick" in sys.argv else WHOLE
    arguments = [each for each in sys.argv[1:] if each != "--quick"]
    known, failed = interpreters(), False
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        version = f"{OLDEST[0]}.{minor}"
        interpreter = known.get((OLDEST[0], minor))
        if interpreter is None:
            _say(f"Python {version}: not here")
        elif (OLDEST[0], minor) != sys.version_info[:2]:
            python = environment(version, interpreter, part)
            _say(f"Python {version}: {part.title}")
            failed |= bool(subprocess.run([python, "-m", "pytest", *part.arguments, *arguments], cwd=ROOT).returncode)
    return int(failed)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
