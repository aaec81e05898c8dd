"""Open a file beside a run only if it is one. A folder from elsewhere may hold pipes, and to open one waits forever."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path) -> BinaryIO:
    """The file, opened for reading; anything else that has a name is an `OSError`."""
    fd = os.open(path, READ)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(fd, "rb")
