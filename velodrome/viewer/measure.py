"""`python -m velodrome.viewer.measure KIND FILE [FILE]`: measure whole files; the result is JSON on stdout.

The viewer runs this for a large file, so that its own process is free to answer. The kind `index` brings the index of
the file up to date, and ends when its parent does; everything else runs at a low priority.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, VelodromeError, blame
from velodrome.index import Index

_ROOT = Path(__file__).parents[2]


def measured(kind: str, paths: Sequence[Path]) -> Any:
    """The numbers of one kind. Any error because of a file is an `InputError`."""
    with blame(InputError, f"{', '.join(path.name for path in paths)}"):
        if kind == "compare":
            from velodrome.stats.compare import compare

            return compare([paths[0]], [paths[1]])
        if kind == "several":
            from velodrome.stats.several import compare_several

            return compare_several(paths)
        if kind == "profile":
            from velodrome.profiling.profile_file import read_profile

            return read_profile(paths[0])
        if kind == "checks":
            from velodrome.checks import read_checks
            from velodrome.checks.check_field import as_json

            return as_json(read_checks(paths[0], keeps_lines=True).findings())
        if kind == "tools":
            from velodrome.viewer.parts.tool_use import read_tool_use

            return read_tool_use(paths[0])
        from velodrome.stats.metrics import read_metrics

        return read_metrics(paths[0])[0]


def start_measuring(kind: str, *paths: Path) -> subprocess.Popen[bytes]:
    """This program as a process, with pipes for what it prints."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "velodrome.viewer.measure", kind, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _index(path: Path) -> None:
    gc.disable()  # rows hold no cycles, and looking for some takes a third of the time
    parent = os.getppid()
    with closing(Index(path)) as index:
        index.refresh(stopped=lambda: os.getppid() != parent)


def main() -> int:
    """One measurement; the exit code is 2 if the file is at fault."""
    kind, *words = sys.argv[1:]
    try:
        if kind == "index":
            _index(Path(words[0]))
            return 0
        with suppress(OSError):
            os.nice(10)
        value = measured(kind, [Path(word) for word in words])
    except VelodromeError as error:
        print(str(error).splitlines()[0], file=sys.stderr)  # noqa: T201 - the error message of a program
        return 2
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY))
    return 0


if __name__ == "__main__":
    sys.exit(main())
