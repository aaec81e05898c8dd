"""Reads JSON lines, plain or `.zst`, and parses lines that other programs may have written.

Reading streams and never holds more than one line. In a `.zst` file each line is a separate compressed frame; any zstd
tool reads the file as one stream. `records/appender.py` writes such files. `loads` tries strict JSON first, because it
is far faster, and then accepts NaN, numbers beyond a float, lone surrogates and broken UTF-8.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import orjson

from velodrome.errors import InputError

if TYPE_CHECKING:
    from velodrome.records.zst import Piece

MAX_LINE_BYTES = 32 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK, opening a pipe waits for its other end


class LongLineError(InputError):
    """A line beyond `MAX_LINE_BYTES`. Parsing it would need many times its size in memory."""


class LostLine(NamedTuple):
    """A line that could not be read. `torn`: its end is missing; `damaged`: the number of damaged bytes."""

    number: int
    reason: str
    torn: bool = False
    damaged: int = 0


Lost = Callable[[LostLine], None]


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. Anything else, such as a pipe, is an `OSError`."""
    fd = os.open(path, READ)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(fd, "rb")


def read_lines(path: Path, *, lost: Lost | None = None) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number from 1.

    A `.zst` file that is cut short is an `InputError`, and so is a line that is too long. With `lost` such lines are
    skipped and reported. So are damaged bytes of a `.zst` file, which count as one line.
    """
    try:
        with path.open("rb", _CHUNK_BYTES) as stream:
            if path.suffix == ".zst":
                from velodrome.records.zst import zst_lines

                lines = zst_lines(path, stream, most=MAX_LINE_BYTES, damaged=lost is not None)
            else:
                lines = _plain_lines(stream)
            for number, line in enumerate(lines, 1):
                if isinstance(line, bytes) and len(line) <= MAX_LINE_BYTES:
                    if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                        line = line[3:]
                    if not line.isspace():
                        yield number, line
                elif lost is not None:
                    lost(_lost_line(number, line))
                elif line is None:
                    raise InputError(f"{path}: cut short after line {number - 1}; the rest of the file is missing")
                else:
                    raise LongLineError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _lost_line(number: int, line: bytes | Piece | None) -> LostLine:
    if line is None:
        return LostLine(number, "cut short", torn=True)
    if isinstance(line, bytes):
        return LostLine(number, f"longer than {MAX_LINE_BYTES // 2**20} MiB")
    reason = f"{line.damaged:,} bytes from byte {line.frame:,} on cannot be decompressed"
    return LostLine(number, reason, damaged=line.damaged)


def _plain_lines(stream: IO[bytes]) -> Iterator[bytes | Piece | None]:
    """Every line; only the start of a line that is too long."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        yield line
        if len(line) > MAX_LINE_BYTES:
            while line[-1:] not in (b"\n", b""):
                line = stream.readline(_CHUNK_BYTES)


def loads(line: bytes | memoryview, *, finite: bool = False) -> Any:
    """Parse a line, or raise a `ValueError`. With `finite`, NaN and infinite numbers become null.

    As with strict JSON, texts can be encoded again and whole numbers have 64 bits.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        strict_error = error
    try:
        return _tidy(json.loads(bytes(line).decode("utf-8", "replace"), parse_int=_integer), finite)
    except (ValueError, RecursionError):
        raise strict_error from None


def _integer(text: str) -> float:
    if len(text) > 20:
        return float(text)
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _tidy(value: Any, finite: bool) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return None if finite and not isfinite(value) else value
    if isinstance(value, list):
        return [_tidy(each, finite) for each in value]
    if isinstance(value, dict):
        return {_tidy(name, finite): _tidy(each, finite) for name, each in value.items()}
    return value
