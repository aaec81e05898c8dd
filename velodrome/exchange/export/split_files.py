"""The files of an export: one for each split, JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.parquet import arrow, json_columns, json_text
from velodrome.records.outfile import OutFile

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 1000


def output_files(to: Path, suffix: str, splits: Sequence[str], *, split: bool) -> tuple[dict[str, Path], Path]:
    """Where each split and the data card go.

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
        """Add one; what is not JSON is a `TypeError`."""
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
        """Write what is left, and the file's end."""
        self._flush()
        self._close_parquet()

    def commit(self) -> None:
        """Put the file in its place. One without records is not written: `datasets` loads no empty file."""
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
