"""JSON lines that are whole or absent, plain or `.zst`, and the one parser for lines that may come from anywhere.

Reading streams and never holds more than one line. In a `.zst` file each line is a compressed frame of its own, which
any zstd tool reads as one stream. `records/appender.py` writes such files. `loads` tries strict JSON first, because it
is far quicker, and then takes what that has no form for: NaN, numbers beyond a float, lone surrogates, broken UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from velodrome.errors import InputError

if TYPE_CHECKING:
    from velodrome.records.zst import Gap
import json
from math import isfinite
from typing import Any

import orjson

Lost = Callable[[int, str, bool], None]  # told of a line: its number, why, and whether it is only not whole yet
Passed = Callable[[int, int, int], None]  # told of damaged bytes: the number they count as, where they begin, how many

MAX_LINE_BYTES = 32 * 1024 * 1024
DAMAGED = "cannot be decompressed"
_CHUNK_BYTES = 1024 * 1024


class LongLineError(InputError):
    """A line beyond `MAX_LINE_BYTES`; a parser fed with it would take many times its size in memory."""


def read_lines(
    path: Path,
    *,
    start: int = 0,
    end: int | None = None,
    fd: int | None = None,
    lost: Lost | None = None,
    passed: Passed | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number from 1. `start` and `end` are byte offsets of a plain file.

    With `fd` the open file is read, wherever its path leads by now.
    A `.zst` file that is cut short is an `InputError`, and so is a line that is too long. With `lost` such lines are
    passed over and told. So are damaged bytes of a `.zst` file, to `passed` where it is given; however many lines
    stood there, they count as one.
    """
    try:
        with open_bytes(path, damaged=lost is not None, fd=fd) as stream:
            if start:
                stream.seek(start)
            position, number = start, 0
            gaps: list[Gap] = getattr(stream, "gaps", [])
            while end is None or position < end:
                line = stream.readline(MAX_LINE_BYTES + 1)
                if gaps and lost is not None:
                    number, cut = _tell_gaps(gaps, position, position + len(line), number, lost, passed)
                    if cut:
                        position += len(line)
                        continue
                if line[-1:] != b"\n" and len(line) <= MAX_LINE_BYTES and getattr(stream, "torn", False):
                    if lost is not None:
                        lost(number + 1, "cut short", True)
                        return
                    raise InputError(f"{path}: cut short after line {number}; the rest of the file is missing")
                if not line:
                    return
                number += 1
                position += len(line)
                if len(line) > MAX_LINE_BYTES:
                    if lost is None:
                        raise LongLineError(f"{path}:{number}: the line is longer than {MAX_LINE_BYTES // 2**20} MiB")
                    position += _pass_over(stream, line)
                    lost(number, f"longer than {MAX_LINE_BYTES // 2**20} MiB", False)
                    continue
                if number == 1 and line.startswith(b"\xef\xbb\xbf"):
                    line = line[3:]
                if not line.isspace():
                    yield number, line
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _tell_gaps(
    gaps: list[Gap], start: int, end: int, number: int, lost: Lost, passed: Passed | None
) -> tuple[int, bool]:
    """Tell of the gaps before the line that is between two offsets. The number they count up to, and if one cuts it."""
    cut = False
    while gaps and (gaps[0].at <= start or (gaps[0].cut and gaps[0].at == end)):
        gap = gaps.pop(0)
        number += 1
        cut = gap.at > start
        if passed is not None:
            passed(number, gap.start, gap.size)
        else:
            lost(number, f"{gap.size:,} bytes from byte {gap.start:,} on {DAMAGED}", False)
    return number, cut


def _pass_over(stream: IO[bytes], line: bytes) -> int:
    """Read to the end of a line of which this is the start; so many bytes."""
    passed = 0
    while line and line[-1:] != b"\n":
        line = stream.readline(_CHUNK_BYTES)
        passed += len(line)
    return passed


def open_bytes(path: Path, *, damaged: bool = False, fd: int | None = None) -> IO[bytes]:
    """The file's bytes, decompressed if its name ends in `.zst`; with `damaged` as far as they can be.

    With `fd` they are those of the open file.
    """
    stream = path.open("rb", buffering=_CHUNK_BYTES) if fd is None else os.fdopen(os.dup(fd), "rb", _CHUNK_BYTES)
    if fd is not None:
        stream.seek(0)
    if path.suffix != ".zst":
        return stream
    from velodrome.records.zst import ZstReader

    return ZstReader(path, damaged=damaged, stream=stream)


def loads(line: bytes | memoryview, *, finite: bool = False) -> Any:
    """The value of a line, or a ValueError. With `finite` what is NaN or infinite is null.

    Texts can be written out again, and whole numbers have 64 bits, as strict JSON gives them.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        strict = error
    try:
        return _tidy(json.loads(bytes(line).decode("utf-8", "replace"), parse_int=_integer), finite)
    except (ValueError, RecursionError):
        raise strict from None


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
