"""The splits of an export and their files, JSON lines or Parquet.

All rollouts of a task are in one split, including those of equal copies and of other files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.parquet import arrow, json_columns, json_text
from velodrome.records.outfile import OutFile
from velodrome.records.task import hashed

ALL = "train"  # the name of the only split

_COPY = re.compile(r"#\d+$")  # added by the collector to the id of a duplicate row
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def parse_shares(text: str | None) -> tuple[dict[str, float], str | None]:
    """The shares in `train=0.9,test=0.1` or `train:0.9,test:0.1`; None is one split.

    Shares that do not add up to 1 are scaled, with a note.
    """
    if text is None:
        return {ALL: 1.0}, None
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.replace(":", "=").partition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not _NAME.fullmatch(name.strip()) or not isfinite(number) or number <= 0 or name.strip() in shares:
            raise InputError(f"split: {part!r:.60} is not a name with its share, as in train=0.9,test=0.1")
        shares[name.strip()] = number
    total = sum(shares.values())
    if isclose(total, 1.0):
        return shares, None
    scaled = {name: share / total for name, share in shares.items()}
    return scaled, f"split: the shares add up to {total:.4g}, not to 1; they are scaled to {listed(scaled)}"


def listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.4g}" for name, share in shares.items())


def task_hash(task: str) -> int:
    """A hash of a task; equal rows of an input have the same."""
    return hashed(_COPY.sub("", task))


class Splits:
    """Tasks divided by shares, as exactly as possible; the seed determines the split of each task."""

    def __init__(self, shares: Mapping[str, float], tasks: Iterable[int], seed: int) -> None:
        self._names = list(shares)
        self._ends: list[int] = []  # of all but the last
        self._seed = seed
        order = sorted({drawn(task, seed) for task in tasks}) if len(shares) > 1 else []
        share, assigned = 0.0, 0
        for name in self._names[:-1]:
            share += shares[name]
            assigned = max(assigned, round(share * len(order)))
            self._ends.append(order[assigned] if assigned < len(order) else 2**64)

    def of(self, task: int) -> str:
        place = drawn(task, self._seed)
        return next((name for name, end in zip(self._names, self._ends, strict=False) if place < end), self._names[-1])


def drawn(number: int, seed: int, purpose: str = "") -> int:
    """A pseudo-random number, the same for the same number, seed and purpose."""
    key, person = str(seed).encode()[:64], purpose.encode()
    return int.from_bytes(
        hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8, key=key, person=person).digest(), "big"
    )


_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 1000


def output_files(to: Path, suffix: str, splits: Sequence[str], *, split: bool) -> tuple[dict[str, Path], Path]:
    """The paths of each split and of the data card.

    `to` is a file, with a card `<name>.README.md` beside it, or a folder with `train.jsonl` and `README.md`.
    """
    known = (".jsonl", ".jsonl.zst", ".parquet")
    ending = next((end for end in known if to.name.endswith(end)), "")
    if not ending:
        if to.suffix and not to.is_dir():
            raise InputError(f"{to}: a file's name ends in {', '.join(known)}; a folder's has no ending")
        return {name: to / f"{name}{suffix}" for name in splits}, to / "README.md"
    if (ending == ".parquet") != (suffix == ".parquet"):
        raise InputError(f"{to}: this format is written as {suffix}")
    stem = to.name.removesuffix(ending)
    paths = {name: to.with_name(f"{stem}.{name}{ending}") if split else to for name in splits}
    return paths, to.with_name(f"{stem}.README.md")


class RecordFile(OutFile):
    """Records as JSON lines or, with a schema, as rows of a Parquet file, a few megabytes at a time.

    A column of Arrow's JSON type holds a value of any shape.
    """

    def __init__(self, path: Path, make_schema: Any, numeric: Sequence[str]) -> None:
        self._arrow = arrow(str(path)) if make_schema is not None else None
        self._schema = make_schema(self._arrow, numeric) if make_schema is not None else None
        self._free = json_columns(self._schema or ())
        super().__init__(path)
        self._parquet: Any = None
        if self._arrow is not None:
            self._parquet = self._arrow.parquet.ParquetWriter(self.stream, self._schema, compression="zstd")
        self.count = 0
        self._rows: list[Json] = []
        self._bytes = 0

    def add(self, record: Json) -> None:
        """Add a record. Raises a `TypeError` if it is not JSON."""
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        self.count += 1
        if self._parquet is None:
            self.write(line)
            return
        self._rows.append(record)
        self._bytes += len(line)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows and self._arrow is not None:
            rows = [{**row, **{name: json_text(row[name]) for name in self._free if name in row}} for row in self._rows]
            try:
                self._parquet.write_batch(self._arrow.RecordBatch.from_pylist(rows, schema=self._schema))
            except OSError as error:
                raise self.refused(error) from error
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        """Write the remaining records, and the end of the file."""
        self._flush()
        self._close_parquet()

    def commit(self) -> None:
        """Publish the file. A file without records is not written: `datasets` cannot load it."""
        if self.count:
            super().commit()
        else:
            self.path.unlink(missing_ok=True)  # of an earlier export, which this one replaces

    def _close_parquet(self) -> None:
        if self._parquet is not None:
            self._parquet.close()

    def __exit__(self, *error: object) -> None:
        self._close_parquet()  # before its stream is gone
        super().__exit__(*error)
