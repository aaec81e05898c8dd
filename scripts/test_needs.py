"""See to what the tests need beyond Python packages: a Chromium, which opens the traces in a real viewer.

As root on a Debian-like system it is installed. Anywhere else what is missing is said, and the tests that need it
skip; under CI=true that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
INSTALL = "apt-get install -y --no-install-recommends chromium"
MISSING = f"no Chromium on the PATH; the trace viewer tests need one ({INSTALL})"


def chromium() -> str | None:
    """The Chromium on the PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def debian_like() -> bool:
    """Whether packages come from apt."""
    return shutil.which("apt-get") is not None and Path("/etc/debian_version").exists()


def install() -> str | None:
    """Install Chromium; the last line of what went wrong, if it did."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in ("apt-get update", INSTALL):
        done = subprocess.run(command.split(), env=environ, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            return f"{command}: {lines[-1] if lines else f'ended with {done.returncode}'}"
    return None


def main() -> int:
    """Nothing to do, something to install, or something to say."""
    if chromium():
        return 0
    why = None
    if os.geteuid() == 0 and debian_like():
        print("installing Chromium for the trace viewer tests (once, under a minute)", file=sys.stderr, flush=True)
        why = install()
        if chromium():
            return 0
    print(f"{MISSING}{f'; {why}' if why else ''}", file=sys.stderr)
    return 1 if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
