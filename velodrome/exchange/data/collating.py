"""Collate the data sets of a config's agents into one file of tasks per type, each task with its agent.

All mistakes are reported together, and nothing is written unless every file is there and every line is a task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError
from velodrome.exchange.problems import Problems
from velodrome.records.jsonl import read_lines
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.records.task import parse_task
from velodrome.settings import Config
from velodrome.settings.files import find_input


@dataclass(frozen=True)
class ListedData:
    """One entry of an agent's `datasets`."""

    agent: str
    type: str
    name: str
    path: Path
    repeats: int


@dataclass
class CollateResult:
    """The number of tasks in each file that was written, and notes."""

    tasks: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def collate(config: Config, folder: Path, types: Collection[str], *, overwrite: bool = False) -> CollateResult:
    """Write FOLDER/TYPE.jsonl for each of these types that occurs."""
    listed = list(_listed(config, types))
    if not listed:
        known = sorted({each.type for each in _listed(config, None)})
        available = f"there are: {', '.join(known)}" if known else "no agent in config_paths lists datasets"
        raise InputError(f"no data set of type {' or '.join(types)}; {available} (see docs/data.md#collate)")
    outputs = {each.type: folder / f"{each.type}.jsonl" for each in listed}
    refuse_existing(outputs.values(), [each.path for each in listed], overwrite=overwrite)
    result, problems = CollateResult(), Problems()
    with ExitStack() as stack:
        files = {kind: stack.enter_context(OutFile(path)) for kind, path in outputs.items()}
        for each in listed:
            count = _copy(each, files[each.type], problems)
            path = str(outputs[each.type])
            result.tasks[path] = result.tasks.get(path, 0) + count
            if each.repeats > 1:
                result.notes.append(
                    f"{each.path}: each task once; for repeats collect with +num_repeats={each.repeats}"
                )
        problems.refuse("nothing is written")
        for file in files.values():
            file.commit()
    return result


def _copy(data: ListedData, file: OutFile, problems: Problems) -> int:
    """Copy the tasks of a data set. A task without an agent gets the agent that lists the data set."""
    count = 0
    for number, line in read_lines(data.path):
        with problems.at(f"{data.path}:{number}"):
            task = parse_task(line)
            task.setdefault("agent_ref", {"type": "responses_api_agents", "name": data.agent})
            file.write(orjson.dumps(task, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
    return count


def _listed(config: Config, types: Collection[str] | None) -> Iterator[ListedData]:
    """The data sets of these types; None means all types."""
    problems: list[str] = []
    for agent in config.agents():
        for place, entry in enumerate(config.instances[agent].settings.get("datasets") or ()):
            where = f"{config.instances[agent].source}: {agent}.datasets[{place}]"
            if types is not None and isinstance(entry, Mapping) and entry.get("type") not in types:
                continue
            try:
                yield _entry(agent, entry, where, must_exist=types is not None)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(*problems)


def _entry(agent: str, entry: Any, where: str, *, must_exist: bool) -> ListedData:
    if not isinstance(entry, Mapping) or not all(isinstance(entry.get(key), str) for key in ("type", "jsonl_fpath")):
        raise InputError(f"{where}: expected a data set with type and jsonl_fpath, not {entry!r:.80}")
    path, repeats = Path(entry["jsonl_fpath"]), entry.get("num_repeats", 1)
    if must_exist:
        try:
            path = find_input(path)
        except InputError as error:
            raise InputError(*(f"{where}: {line}" for line in error.problems)) from error
    return ListedData(
        agent, entry["type"], str(entry.get("name", "")), path, repeats if isinstance(repeats, int) else 1
    )
