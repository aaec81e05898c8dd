"""The law of exports: what went in is what the reader's own code gets out, or it was left out and counted.

A reader's test exports the corpus (`exported`), reads the file with the reader's code, turns what the reader made of
each record into the corpus's events, and asks for the verdict on each feature (`verdicts`). The verdicts are the
reader's column of the table in docs/export.md: `hold` compares them, or writes them with WRITE_LAW=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.interop.corpus import CASES, FEATURES, Case, Event, write
from tests.interop.programs import ROOT
from velodrome.exchange.api import export
from velodrome.exchange.export.format import ExportSettings, Unit, reason
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.problems import FLAWS

PAGE = ROOT / "docs" / "export.md"
END = "<!-- end -->"
KEPT, LEFT_OUT = "kept", "left out"


def exported(form: str, folder: Path, to: str, **settings: Any) -> tuple[Path, list[str], dict[str, str]]:
    """The corpus in a format: the file, the case of each of its records in order, and why rollouts are left out."""
    records, problems = {}, {}
    for name, case in CASES.items():
        records[name], problems[name] = _converted(form, case, settings)
    path = folder / to
    result = export(form, [write(folder)], path, **settings)
    names = [name for name, count in records.items() for _ in range(count)]
    assert sum(result.records.values()) == len(names)
    assert result.unfit == sum(map(len, problems.values())), result.notes
    return path, names, {name: each[0] for name, each in problems.items() if each}


def record(form: str, case: Case) -> bytes:
    """The line that the rollout of a case becomes."""
    [made] = FORMATS[form].start(ExportSettings(), lambda row, error: None)(Unit("train", case.rows()[:1]))
    return orjson.dumps(made, option=orjson.OPT_APPEND_NEWLINE)


def _converted(form: str, case: Case, settings: Mapping[str, Any]) -> tuple[int, list[str]]:
    """How many records the case's rollouts become, and why one of them does not."""
    fmt = FORMATS[form]
    rows = case.rows() if fmt.by_task or fmt.where == "" else case.rows()[:1]
    units = [Unit("train", rows)] if fmt.by_task else [Unit("train", [row]) for row in rows]
    own = ExportSettings(**{name: value for name, value in settings.items() if name in ExportSettings.model_fields})
    records, problems = 0, []
    convert = fmt.start(own, lambda row, error: problems.append(reason(row, error)))
    for unit in units:
        try:
            records += len(list(convert(unit)))
        except FLAWS as error:
            problems.append(reason(unit.rows[0], error))
    return records, problems


def as_it_was(case: Case) -> tuple[list[Event], str]:
    return case.happened, KEPT


def verdicts(
    seen: Mapping[str, Sequence[Event]],
    unfit: Mapping[str, str],
    expected: Callable[[Case], tuple[list[Event] | None, str]] = as_it_was,
) -> dict[str, str]:
    """The verdict on each feature, by the events that the reader has of each case.

    `expected` says what the reader is to have of a case, and in a word or two how that differs from what happened;
    None stands for anything else.
    """
    words: dict[str, list[str]] = {feature: [] for feature in FEATURES}
    words["failed rollout"].append(LEFT_OUT)
    assert seen.keys() <= CASES.keys(), "a failed rollout is never exported"
    for name, case in CASES.items():
        assert (name in seen) != (name in unfit), f"{name}: neither read nor left out, or both"
        if name in seen:
            events, word = expected(case)
            if events is None:
                assert list(map(tuple, seen[name])) != case.happened, name
            else:
                assert list(map(tuple, seen[name])) == events, name
            words[case.feature].append(word)
        else:
            words[case.feature].append(LEFT_OUT)
    return {feature: " or ".join(dict.fromkeys(each)) for feature, each in words.items()}


def hold(reader: str, result: Mapping[str, str], table: str = "readers") -> None:
    """The reader's column of a table in the docs says the same."""
    written = columns(table)
    if os.environ.get("WRITE_LAW") == "1":
        written = {**written, reader: dict(result)}
        head, _, tail = _parts(table)
        PAGE.write_text(head + _written(written, list(result)) + tail, encoding="utf-8")
    assert written.get(reader) == dict(result), f"docs/export.md, {reader}: WRITE_LAW=1 writes the column"


def columns(table: str) -> dict[str, dict[str, str]]:
    """What a table of the docs says of each reader."""
    return _read(_parts(table)[1])


def _parts(table: str) -> tuple[str, str, str]:
    """The page before, in and after the table."""
    start = f"<!-- {table}: WRITE_LAW=1 pytest tests/interop -->\n"
    head, mark, rest = PAGE.read_text(encoding="utf-8").partition(start)
    body, end, tail = rest.partition(END)
    assert (mark, end) == (start, END), f"docs/export.md has no table {start}"
    return head + mark, body, end + tail


def _read(body: str) -> dict[str, dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in body.splitlines() if line]
    if not lines:
        return {}
    (_, *readers), _, *rows = lines
    return {reader: {row[0]: row[at] for row in rows} for at, reader in enumerate(readers, 1)}


def _written(columns: Mapping[str, Mapping[str, str]], rows: Sequence[str]) -> str:
    lines = [["rollouts with", *columns], ["---"] * (1 + len(columns))]
    lines += [[row, *(column.get(row, "") for column in columns.values())] for row in rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
