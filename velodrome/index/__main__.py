"""`python -m velodrome.index FILE`: bring the index of a file up to date.

The viewer runs this for a long file, so that its own process is free to answer. It ends when its parent does.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import closing
from pathlib import Path

from velodrome.errors import VelodromeError
from velodrome.index.index import Index


def main() -> int:
    """The exit code: 0 if the index could be opened."""
    gc.disable()  # rows hold no cycles, and looking for some takes a third of the time
    parent = os.getppid()
    try:
        with closing(Index(Path(sys.argv[1]))) as index:
            index.refresh(stopped=lambda: os.getppid() != parent)
    except VelodromeError as error:
        print(error, file=sys.stderr)  # noqa: T201 - its only output
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
