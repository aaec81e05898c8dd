"""The files of a box, read and written from inside it, without following a link. Runs inside a sandbox."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = READ | os.O_DIRECTORY
MOST_FILES = 20_000  # an empty file costs memory of the kernel, too
FULL = 1 << 14  # bytes: with less than this the scratch is full


def _open_parent(path: str, create: bool) -> tuple[int, str]:
    """The folder of a path, opened without following links, and the name in it."""
    *folders, name = path.split("/")
    if not name or any(part in ("", ".", "..") for part in folders) or name in (".", "..") or "\0" in path:
        raise OSError(22, "not a path inside the sandbox")
    folder = os.open(".", FOLDER)
    for part in folders:
        try:
            if create:
                try:
                    os.mkdir(part, 0o755, dir_fd=folder)
                except FileExistsError:
                    pass
            inner = os.open(part, FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder, name


def write_file(path: str, data: bytes) -> None:
    folder, name = _open_parent(path, create=True)
    try:
        try:
            os.unlink(name, dir_fd=folder)  # also a link or a pipe that a program left there
        except FileNotFoundError:
            pass
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def read_file(path: str, limit: int) -> bytes:
    folder, name = _open_parent(path, create=False)
    try:
        file = os.open(name, READ, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(22, "not a regular file")
        data = bytearray()
        while len(data) < limit and (more := os.read(file, min(1 << 20, limit - len(data)))):
            data += more
        return bytes(data)
    finally:
        os.close(file)


def list_files(limit: int) -> bytes:
    """The paths of all regular files in order, each ended by a zero byte, as many as fit."""
    names = bytearray()
    for path in sorted(entry.path for entry in _entries() if entry.is_file(follow_symlinks=False)):
        if len(names) + len(path) > limit:
            break
        names += path[2:] + b"\0"
    return bytes(names)


def _entries() -> Iterator[os.DirEntry[bytes]]:
    """Everything below the scratch that is not a folder. A program may have nested these deep, or locked them."""
    todo = [b"."]
    while todo:
        try:
            with os.scandir(todo.pop()) as folder:
                for entry in folder:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        yield entry
        except OSError:
            pass


def disk_is_used_up(limit: int, alone: bool, at_end: bool) -> bool:
    """Whether there are too many files, or too many bytes in them.

    A scratch with a file system of its own (`alone`) refuses more bytes by itself: they count only at the end.
    """
    if alone:
        disk = os.statvfs(".")
        return disk.f_files - disk.f_ffree > MOST_FILES or (at_end and disk.f_bavail * disk.f_bsize < FULL)
    size = 0
    for files, entry in enumerate(_entries()):
        try:
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            pass
        if files > MOST_FILES or size + FULL > limit:
            return True
    return False
