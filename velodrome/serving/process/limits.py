"""How many files and connections this process, and every process it starts, may have open."""

from __future__ import annotations

import contextlib
import resource

TARGET = 65535
_FOR_FILES = 32  # open besides connections: streams, the loop, input, output, a file that is being replaced


def raise_file_limit(target: int = TARGET) -> int:
    """Raise the soft limit to `target`, or as far as the hard limit allows; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = target if hard == resource.RLIM_INFINITY else min(target, hard)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        with contextlib.suppress(ValueError, OSError):  # some systems refuse their own hard limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_within(files: int) -> int:
    """How many connections are possible with this limit of descriptors, leaving room for files."""
    return files - _FOR_FILES if files >= 2 * _FOR_FILES else max(files // 2, 1)
