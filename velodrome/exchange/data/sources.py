"""Rows of a data set, one at a time: CSV, JSON lines, Parquet, or what Hugging Face's `datasets` loads.

Each row has its place. A bad row is replaced by a description of its mistake, and reading continues. To add a kind of
file, write a function and add it to `READERS`.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError, blame
from velodrome.exchange.data.messages import unpadded
from velodrome.exchange.parquet import arrow, json_columns
from velodrome.exchange.problems import mistake
from velodrome.records.jsonl import MAX_LINE_BYTES, read_lines
from velodrome.settings.files import file_problem

PlacedRow = tuple[str, Json | str]  # the place, and the row or its mistake

HUB = "hf:"
_BATCH_ROWS = 512


def _json_rows(path: Path) -> Iterator[PlacedRow]:
    for number, line in read_lines(path):
        try:
            row = orjson.loads(line)
            yield f"{path}:{number}", row if isinstance(row, dict) else "a row is a JSON object"
        except orjson.JSONDecodeError as error:
            yield f"{path}:{number}", mistake(error)


def _csv_rows(path: Path) -> Iterator[PlacedRow]:
    csv.field_size_limit(MAX_LINE_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = csv.reader(stream, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
            header = next(lines, None)
            if not header or not all(header) or len(set(header)) < len(header):
                raise InputError(f"{path}:1: the first line names the columns, each once")
            for values in lines:
                if len(values) == len(header):
                    yield f"{path}:{lines.line_num}", dict(zip(header, values, strict=True))
                elif values:
                    yield f"{path}:{lines.line_num}", f"{len(values)} values for {len(header)} columns"
    except csv.Error as error:
        raise InputError(f"{path}:{lines.line_num}: not CSV from here on: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


def _parquet_rows(path: Path) -> Iterator[PlacedRow]:
    package = arrow(str(path))
    number = 0
    with blame(InputError, f"{path}: cannot be read"):
        file = package.parquet.ParquetFile(path)
        free = json_columns(file.schema_arrow)
        typed = [name for name in file.schema_arrow.names if name not in free]
        for batch in file.iter_batches(batch_size=_BATCH_ROWS):
            for row in batch.to_pylist():
                number += 1
                decoded = {name: orjson.loads(row[name] or b"null") for name in free}
                yield f"{path}: row {number}", unpadded(row, typed) | decoded


def _hub_rows(name: str) -> Iterator[PlacedRow]:
    """Rows of a data set that `datasets` loads, from a local folder, its cache or its hub."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise InputError(f"{name}: the package datasets is not installed; pip install datasets") from error
    folder, _, split = name.rpartition(":") if ":" in name else (name, "", "train")
    with blame(InputError, f"{name}: cannot be loaded (is its hub reachable?)"):
        if any((Path(folder) / file).is_file() for file in ("state.json", "dataset_dict.json")):
            rows = datasets.load_from_disk(folder)
            rows = rows[split] if isinstance(rows, dict) else rows
        else:
            rows = datasets.load_dataset(folder, split=split)
    with blame(InputError, f"{name}: cannot be read"):
        typed = [column for column, kind in rows.features.items() if "Json(" not in repr(kind)]
        for number, row in enumerate(rows, 1):
            yield f"{name}: row {number}", unpadded(row, typed)


READERS: dict[str, Callable[[Path], Iterator[PlacedRow]]] = {
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".jsonl": _json_rows,
    ".jsonl.zst": _json_rows,
    ".parquet": _parquet_rows,
}


def read_rows(source: str) -> Iterator[PlacedRow]:
    """Every row of a source, with the reader of its file type."""
    path = Path(source)
    if source.startswith(HUB) or path.is_dir():
        return _hub_rows(source.removeprefix(HUB))
    if (problem := file_problem(path)) is not None:
        raise InputError(problem)
    for ending, read in READERS.items():
        if path.name.endswith(ending):
            return read(path)
    kinds = ", ".join((*READERS, "a folder, or hf:name[:split]"))
    raise InputError(f"{source}: not a kind of data that is known here; {kinds}")
