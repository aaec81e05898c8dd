"""Run the tests of what was changed since main: the folders of tests/ named like the changed folders of the package.

    python scripts/changed.py [ARG…]    # ARG are pytest's

On main itself, what was changed since the last commit there that was pushed, or since the last commit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/golden", "tests/test_layers.py", "tests/test_shape.py", "tests/test_suite.py")


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def base() -> str:
    """The commit that the work started from."""
    branch = git("rev-parse", "--abbrev-ref", "HEAD")
    names = ("origin/main",) if branch == ["main"] else ("main", "origin/main")
    return next((commit for name in names for commit in git("merge-base", "HEAD", name)), "HEAD")


def tests_of(path: str) -> list[str]:
    """The tests of a changed file: its folder's, its own, or the file itself if it is a test."""
    parts = Path(path).parts
    if parts[0] == "tests":
        return [path] if Path(path).name.startswith("test_") else []
    if parts[0] == "velodrome" and len(parts) > 1:
        name = Path(parts[1]).stem
        own = sorted((ROOT / "tests" / name).glob(f"test_{parts[2]}*.py")) if len(parts) > 3 else []
        return [str(each.relative_to(ROOT)) for each in own] or [f"tests/{name}", f"tests/test_{name}.py"]
    return {"docs": ["tests/docs"], "README.md": ["tests/docs"], "recipes": ["tests/training"]}.get(parts[0], [])


def main(arguments: list[str]) -> int:
    files = [*git("diff", "--name-only", base()), *git("ls-files", "--others", "--exclude-standard")]
    tests = {test for path in files for test in tests_of(path) if (ROOT / test).exists()}
    print(f"{len(files)} files changed: {' '.join(sorted(tests)) or 'no folder of tests'}")
    return subprocess.run([sys.executable, "-m", "pytest", *arguments, *ALWAYS, *sorted(tests)], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
