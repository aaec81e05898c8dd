"""Shared types of settings. A name or a path that looks like a number on the command line is accepted as text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

LARGEST = 2**63 - 1  # the largest whole number that every JSON parser accepts
MOST_WORKERS = 256  # processes; thousands would exhaust the memory of the machine


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _path(value: Any) -> Any:
    text = _text(value)
    if text == "":
        raise ValueError("a path is not empty")
    return Path(text).expanduser() if isinstance(text, str | os.PathLike) else text


def _count_or_auto(most: int, words: str) -> PlainValidator:
    def check(value: Any) -> Any:
        if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most):
            return value
        raise ValueError(f"expected a whole number {words}, or auto, not {value!r:.80}")

    return PlainValidator(check)


def _split(value: Any) -> Any:
    """`"a,b"` on a command line is `("a", "b")`."""
    if isinstance(value, set | frozenset):
        return tuple(sorted(value))
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return tuple(value) if isinstance(value, list) else value
    names = tuple(name.strip() for word in words for name in word.split(","))
    if not all(names):
        raise ValueError(f"expected names with commas between them, not {','.join(words)!r:.40}")
    return names


def _counts(value: Any) -> Any:
    """A single number counts as a list with one element."""
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else _split(value)


def _jsonl(path: Path) -> Path:
    if not path.name.endswith((".jsonl", ".jsonl.zst")):
        raise ValueError(f"expected a name that ends in .jsonl or .jsonl.zst, not {str(path)!r:.80}")
    return path


Count = Annotated[int, Field(ge=1, le=LARGEST)]
Repeats = Annotated[int, Field(ge=1, le=1_000_000)]  # of one task: a plan has one byte per repeat
Seed = Annotated[int, Field(ge=0, le=LARGEST)]
Amount = Annotated[float, Field(ge=0)]
Port = Annotated[int, Field(ge=0, le=65535)]
Text = Annotated[str, Field(min_length=1), BeforeValidator(_text)]
FilePath = Annotated[Path, BeforeValidator(_path)]
JsonlFile = Annotated[FilePath, AfterValidator(_jsonl)]
Parallel = Annotated[int | Literal["auto"], _count_or_auto(LARGEST, "from 1")]
Workers = Annotated[int | Literal["auto"], _count_or_auto(MOST_WORKERS, f"from 1 to {MOST_WORKERS}")]
Names = Annotated[tuple[Text, ...], BeforeValidator(_split)]
Counts = Annotated[tuple[Count, ...], BeforeValidator(_counts)]
