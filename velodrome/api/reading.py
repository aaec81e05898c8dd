"""`read`: the rollouts of files, one by one, filtered as in the viewer, or as a table.

Nothing is read before it is needed, and nothing is held open between calls. Lines that are not rollouts are skipped
and counted in `Rows.notes`, as every other reader does it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from velodrome.api.call import public_call
from velodrome.errors import InputError
from velodrome.records.jsonl import loads
from velodrome.records.other_files import other_file
from velodrome.records.rollout import beside, encode
from velodrome.records.rows import Unread, read_rows
from velodrome.records.views import Rollout
from velodrome.settings.files import file_problem
from velodrome.wings import wing

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Json = dict[str, Any]
PathLike = str | os.PathLike[str]


class Rows:
    """The rollouts of one or several files. A key that is in several files is read from the first of them."""

    def __init__(self, paths: Iterable[Path], where: str = "") -> None:
        self.paths = tuple(paths)
        self._filter = where
        self.notes: list[str] = []  # of the latest pass: lines that were skipped, and why

    def where(self, text: str) -> Rows:
        """The rows that also match a filter, in the viewer's language: `reward<1 tools>3 error:timeout "text"`."""
        if not isinstance(text, str):
            raise InputError(f'a filter is a text, as in where("reward<1 tools>3"), not {text!r:.80}')
        wing("index").Query.parse(text)  # report a mistake now, not at the first rollout
        return Rows(self.paths, f"{self._filter} {text}".strip())

    def __iter__(self) -> Iterator[Rollout]:
        notes: list[str] = []
        earlier_keys: set[str] = set()
        for path in self.paths:
            file_keys: set[str] = set()
            for row in self._filtered(path) if self._filter else _all(path, notes):
                rollout = Rollout(row)
                if len(self.paths) > 1:
                    if rollout.key in earlier_keys:
                        continue
                    file_keys.add(rollout.key)
                yield rollout
            earlier_keys |= file_keys - {""}
        self.notes = notes

    def _filtered(self, path: Path) -> Iterator[Json]:
        checks = wing("index.check_field").file_checks(path)
        for _, line in wing("index").matching_lines(path, self._filter, outside=[checks]):
            yield loads(line)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    @overload
    def __getitem__(self, at: int) -> Rollout: ...
    @overload
    def __getitem__(self, at: slice) -> list[Rollout]: ...
    def __getitem__(self, at: int | slice) -> Rollout | list[Rollout]:
        """One rollout, or several; the file is read up to there. Use `list(rows)` for many accesses."""
        if isinstance(at, slice):
            if min(at.start or 0, at.stop or 0, at.step or 1) < 0:
                return list(self)[at]
            return list(islice(self, at.start, at.stop, at.step))
        if at < 0:
            return list(self)[at]
        rollout = next(islice(self, at, None), None)
        if rollout is None:
            raise IndexError(f"no rollout {at}")
        return rollout

    def failures(self) -> list[Json]:
        """The failed attempts, from the failures files beside the rollouts."""
        files = [path for each in self.paths if (path := beside(each, "failures.jsonl")).exists()]
        return [row for path in files for row in _all(path, [])]

    def to_arrow(self) -> pyarrow.Table:
        """A pyarrow table: a column for each number, text, part of the time; the conversation as JSON."""
        table: pyarrow.Table = wing("exchange.export.flat").arrow_table(rollout.row for rollout in self)
        return table

    def to_pandas(self) -> pandas.DataFrame:
        """The same columns as a pandas frame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The same columns as a polars frame."""
        table = self.to_arrow()
        import polars

        frame = polars.from_arrow(table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def __repr__(self) -> str:
        files = ", ".join(str(path) for path in self.paths)
        return f"Rows({files}{f', where={self._filter!r}' if self._filter else ''})"


@public_call
def read(rollouts: PathLike | Iterable[PathLike], where: str = "") -> Rows:
    """The rollouts of a file, or of several as one run.

    The result is lazy: iterate over it, filter it with `.where("reward<1 tools>3")`, or turn it into a table with
    `.to_pandas()`, `.to_polars()` or `.to_arrow()`.
    """
    rows = Rows(checked_files(rollouts))
    return rows.where(where) if where else rows


def checked_files(rollouts: PathLike | Iterable[PathLike]) -> list[Path]:
    """The files to read. Raises an `InputError` with all mistakes."""
    paths = named_files(rollouts)
    problems = [problem for path in paths if (problem := _problem(path)) is not None]
    resolved = [path.resolve() for path in paths]
    problems += dict.fromkeys(f"{path}: named twice" for at, path in enumerate(paths) if resolved[at] in resolved[:at])
    if not paths:
        problems.append("no rollouts: give a file")
    if problems:
        raise InputError(*problems)
    return paths


def named_files(rollouts: PathLike | Iterable[PathLike]) -> list[Path]:
    """The paths of a file, or of a list of files."""
    members = [rollouts] if isinstance(rollouts, str | os.PathLike) else _members(rollouts, "rollouts files")
    if wrong := [each for each in members if not isinstance(each, str | os.PathLike)]:
        raise InputError(f"rollouts: expected the path of a file, not {wrong[0]!r:.80}")
    return [Path(each).expanduser() for each in members]


def _members(rollouts: Any, what: str) -> list[Any]:
    """The members of a list of files or rollouts. A table is refused: iterating it gives the names of its columns."""
    table = hasattr(rollouts, "columns")
    if table or isinstance(rollouts, Mapping | bytes) or not isinstance(rollouts, Iterable):
        description = f"a {type(rollouts).__name__}" if table else f"{rollouts!r:.80}"
        raise InputError(f"rollouts: expected a file, or a list of {what}, not {description}")
    return list(rollouts)


def _problem(path: Path) -> str | None:
    if (problem := file_problem(path)) is not None:
        return problem
    if path.name.endswith((".failures.jsonl", ".failures.jsonl.zst")):
        return f"{path}: a failures file; give the rollouts file beside it"
    return other_file(path)


@contextmanager
def rollout_files(rollouts: Any) -> Iterator[list[Path]]:
    """The files of an argument. Filtered rows and rollouts in memory are written to a temporary file."""
    if isinstance(rollouts, Rows) and not rollouts._filter:
        yield list(rollouts.paths)
        return
    if isinstance(rollouts, str | os.PathLike):
        yield checked_files(rollouts)
        return
    members: Iterable[Any] = rollouts if isinstance(rollouts, Rows) else _members(rollouts, "files or rollouts")
    if isinstance(members, list) and all(isinstance(each, str | os.PathLike) for each in members):
        yield checked_files(members)
        return
    if isinstance(members, list) and (wrong := [each for each in members if not isinstance(each, Rollout | dict)]):
        other = next((each for each in wrong if not isinstance(each, str | os.PathLike)), wrong[0])
        raise InputError(f"rollouts: expected files or rollouts, not {other!r:.80} among them")
    with tempfile.TemporaryDirectory(prefix="velodrome-") as folder:
        path = Path(folder, "rollouts.jsonl")
        with path.open("wb") as stream:
            stream.writelines(encode(each.row if isinstance(each, Rollout) else each) for each in members)
        yield [path]


def _all(path: Path, notes: list[str]) -> Iterator[Json]:
    unread = Unread(path)
    for _, row, _ in read_rows(path, unread):
        yield row
    notes += unread.notes
