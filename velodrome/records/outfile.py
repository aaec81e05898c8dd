"""New files that are complete or absent.

Data is written to a hidden file beside the target; `commit` moves it there. A file with a name in `.zst` is compressed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from velodrome.errors import InputError, StorageError
from velodrome.records.rollout import SIDECARS, beside


def side_file_problem(path: Path) -> str | None:
    """The problem if this is the name of a file beside another output, or None."""
    if path.name.removesuffix(".zst").endswith(tuple(f".{kind}" for kind in SIDECARS)):
        return f"{path}: the name of a file that belongs to a run's rollouts; give another output"
    return None


def refuse_existing(paths: Iterable[Path], sources: Iterable[Path], *, overwrite: bool) -> None:
    """Raise if an output is an input, a file beside an input, or exists and may not be replaced."""
    inputs = {file.resolve() for source in sources for file in (source, *(beside(source, kind) for kind in SIDECARS))}
    problems = []
    for path in paths:
        if path.resolve() in inputs:
            problems.append(f"{path}: the file that is read, or one that belongs to it; give another output")
        elif (problem := side_file_problem(path)) is not None:
            problems.append(problem)
        elif path.is_dir():
            problems.append(f"{path}: a folder, not a file; give a file's name")
        elif path.exists() and not overwrite:
            problems.append(f"{path}: there already; set overwrite to replace it")
    if problems:
        raise InputError(*problems)


class OutFile:
    """One new file. Without `commit`, everything is removed at the end of the block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._new_folders = [folder for folder in path.parents if not folder.exists()]  # innermost first
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._raw: IO[bytes] = self.part.open("w+b")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        self.stream: Any = self._raw  # for writers of other formats (Parquet)
        if path.suffix == ".zst":
            from velodrome.records.zst import zstandard

            self.stream = zstandard.ZstdCompressor(level=3).stream_writer(self._raw, closefd=False)

    def write(self, data: bytes) -> None:
        try:
            self.stream.write(data)
        except OSError as error:
            raise self.refused(error) from error

    def commit(self) -> None:
        try:
            self._close()
            os.replace(self.part, self.path)
        except OSError as error:
            raise self.refused(error) from error

    def refused(self, error: OSError) -> StorageError:
        return StorageError(f"{self.path}: cannot be written: {error.strerror or error}; nothing is left of it")

    def _close(self) -> None:
        if self.stream is not self._raw:
            self.stream.close()
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.part.exists():
            with suppress(OSError):  # the disk is full, but the file is removed anyway
                self._close()
            self.part.unlink(missing_ok=True)
        for folder in self._new_folders:
            with suppress(OSError):  # not empty
                folder.rmdir()


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader sees the old file or the new one, also after a crash."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
