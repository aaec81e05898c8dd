"""What of the host a sandbox can see: this interpreter, a shell and the usual small tools, and the libraries of these.

Each file is mounted by itself, read-only, at a place of its own under /usr, so that the layout of the host does not
show. Nothing else of the host is there: no /etc, no home, no packages that were installed for this interpreter.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path

from velodrome.sandbox.shared_libraries import shared_libraries

_NAMES = (
    "sh bash cat ls cp mv rm mkdir rmdir ln touch chmod head tail wc sort uniq cut tr tee echo printf test true false "
    "pwd env date sleep seq expr basename dirname realpath stat du find xargs grep sed awk diff cmp tar gzip md5sum "
    "sha256sum od paste nl timeout which mktemp comm split"
)
TOOLS = tuple(_NAMES.split())
PLACE = "/usr/bin"
_DATA = ("/usr/lib/locale/C.utf8", "/usr/share/zoneinfo")  # what the interpreter looks for beside itself

_LEFT_OUT = (
    "_tkinter",
    "nis",
    "_curses",
    "readline",
    "_dbm",
    "_gdbm",
    "_test",
    "_xxtest",
    "xx",
    "ossaudiodev",
    "spwd",
)  # and their libraries


@cache
def mounts() -> tuple[tuple[str, str], ...]:
    """Pairs of a path of the host and its path in the box."""
    python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
    programs = {f"{PLACE}/{version}": python}
    for name in TOOLS:
        path = shutil.which(name, path="/usr/bin:/bin:/usr/local/bin")
        if path:
            programs[f"{PLACE}/{name}"] = os.path.realpath(path)
    extensions = [
        str(path) for path in Path(library, "lib-dynload").glob("*.so") if not path.name.startswith(_LEFT_OUT)
    ]
    libraries = shared_libraries([*programs.values(), *extensions])
    pairs = [*((path, place) for place, path in programs.items()), (library, f"/usr/lib/{version}")]
    pairs += [(path, f"/usr/lib/{name}") for name, path in sorted(libraries.items())]
    return (*pairs, *((path, path) for path in _DATA if os.path.isdir(path)))


def interpreter() -> str:
    """The path of the interpreter in the box."""
    return mounts()[0][1]
