"""The files of an export: one for each split, JSON lines or Parquet, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError, StorageError
from velodrome.exchange.parquet import arrow
from velodrome.records.outfile import OutFile

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 1000
_LINES = (".jsonl", ".jsonl.zst")


def output_files(to: Path, suffix: str, splits: Sequence[str], *, split: bool) -> tuple[dict[str, Path], Path]:
    """Where each split and the data card go.

    `to` is a file, beside which a card `<name>.README.md` stands, or a folder with `train.jsonl` and `README.md`.
    """
    known = (*_LINES, ".parquet")
    ending = next((end for end in (".jsonl.zst", ".jsonl", ".parquet") if to.name.endswith(end)), "")
    if not ending:
        if to.suffix and not to.is_dir():
            raise InputError(f"{to}: a file's name ends in {', '.join(known)}; a folder's has no ending")
        return {name: to / f"{name}{suffix}" for name in splits}, to / "README.md"
    if (ending == ".parquet") != (suffix == ".parquet"):
        raise InputError(f"{to}: this format is written as {suffix}")
    stem = to.name.removesuffix(ending)
    paths = {name: to.with_name(f"{stem}.{name}{ending}") if split else to for name in splits}
    return paths, to.with_name(f"{stem}.README.md")


class LinesWriter:
    """Records as JSON lines."""

    def __init__(self, out: OutFile) -> None:
        self._out = out

    def write(self, record: Json) -> None:
        """Add one; what is not JSON is a `TypeError`."""
        self._out.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def close(self) -> None:
        """Nothing is held back."""

    def abandon(self) -> None:
        """Nothing is held back."""


class ParquetWriter:
    """Records as rows of a Parquet file, a few megabytes at a time."""

    def __init__(self, out: OutFile, package: Any, schema: Any) -> None:
        self._package, self._schema, self._path = package, schema, out.path
        self._writer = package.parquet.ParquetWriter(out.stream, schema, compression="zstd")
        self._rows: list[Json] = []
        self._bytes = 0

    def write(self, record: Json) -> None:
        """Add one."""
        self._bytes += len(orjson.dumps(record))
        self._rows.append(record)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            try:
                self._writer.write_batch(self._package.RecordBatch.from_pylist(self._rows, schema=self._schema))
            except OSError as error:
                raise StorageError(f"{self._path}: cannot be written: {error}; nothing is left of it") from error
        self._rows, self._bytes = [], 0

    def close(self) -> None:
        """Write what is left, and the file's end. Closing twice is fine."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Forget what is left, so that nothing is written to a stream that is gone."""
        self._rows = []
        self._writer.close()


class Files:
    """The writers of all splits. Leaving the block without `commit` leaves nothing behind."""

    def __init__(self, paths: dict[str, Path], make_schema: Any, numeric: Sequence[str]) -> None:
        self.counts = dict.fromkeys(paths, 0)
        self._stack = ExitStack()
        self._outs: list[OutFile] = []
        self._writers: dict[str, LinesWriter | ParquetWriter] = {}
        package = arrow(str(next(iter(paths.values())))) if make_schema is not None else None
        with ExitStack() as stack:
            for name, path in paths.items():
                out = stack.enter_context(OutFile(path))
                self._outs.append(out)
                self._writers[name] = (
                    LinesWriter(out) if package is None else ParquetWriter(out, package, make_schema(package, numeric))
                )
            self._stack = stack.pop_all()

    def write(self, split: str, record: Json) -> None:
        """Add one record to a split."""
        self._writers[split].write(record)
        self.counts[split] += 1

    def commit(self) -> None:
        """Put every file in its place. A split without records has none: `datasets` loads no empty file."""
        for writer in self._writers.values():
            writer.close()
        for out, count in zip(self._outs, self.counts.values(), strict=True):
            if count:
                out.commit()
            else:
                out.path.unlink(missing_ok=True)  # of an earlier export, which this one replaces

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *error: object) -> None:
        for writer in self._writers.values():
            writer.abandon()
        self._stack.close()
