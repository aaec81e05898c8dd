"""The law of exports: what went in is what the reader's own code gets out, or it was left out and counted.

A reader's test exports the corpus (`exported`), reads the file with the reader's code, turns what the reader made of
each record into the corpus's events, and compares them with what happened (`hold`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tests.interop.corpus import CASES, Case, Event, write
from velodrome.exchange.api import export
from velodrome.exchange.export.format import ExportSettings, Unit, reason
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.problems import FLAWS

NO_FORM = {  # what chat messages cannot hold, or `datasets` would change
    "refusal beside text",
    "arguments that are not JSON",
    "image in a tool result",
    "decimals such as 0.3 in arguments",
    "image in the prompt",
    "image behind an http address",
}
CUT_OFF = "cut off by max_output_tokens"
LEFT_OUT: dict[str, set[str]] = {
    "sft": {*NO_FORM, CUT_OFF, "stopped by max_steps", "ends with a tool result"},
    "dpo": {*NO_FORM, CUT_OFF},
    "grpo": NO_FORM,
    "nemo_gym": set(),
    "verl": set(),
}


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


def hold(
    form: str,
    seen: Mapping[str, Sequence[Event]],
    unfit: Mapping[str, str],
    expected: Callable[[Case], list[Event] | None] = lambda case: case.happened,
) -> None:
    """Check the events that a reader has of each case, and which cases were left out.

    `expected` says what the reader is to have of a case; None stands for anything but what happened.
    """
    assert seen.keys() ^ unfit.keys() == CASES.keys(), "each case is read or left out, and a failure is never exported"
    assert {CASES[name].feature for name in unfit} == LEFT_OUT[form]
    for name, events in seen.items():
        wanted = expected(CASES[name])
        if wanted is None:
            assert list(map(tuple, events)) != CASES[name].happened, name
        else:
            assert list(map(tuple, events)) == wanted, name
