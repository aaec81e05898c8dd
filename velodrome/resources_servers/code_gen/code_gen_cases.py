"""The program of an answer, and the test cases of a task in the shapes that people's data has.

`test_cases` (or `input_output`, as APPS has it) is `{"inputs": […], "outputs": […]}`, a list of `{"input": …,
"output": …}`, or either as JSON text. With `entry_point` (or `fn_name` among the cases) an input is the list of a
call's arguments.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.stated import last_block

MAX_PROGRAM = 1 << 18  # characters: nobody writes more by hand
_PYTHON = ("python", "python3", "py")


@dataclass(frozen=True)
class CaseSet:
    """What goes into the sandbox, and what is expected, which stays outside."""

    inputs: list[Any]
    outputs: list[Any]
    entry_point: str | None
    wrapped: bool  # APPS writes the value 3 as [3] for some tasks and as 3 for others

    def accepted(self, expected: Any) -> list[Any]:
        """The values that are right where this one is expected."""
        return (
            [expected, *expected] if self.wrapped and isinstance(expected, list) and len(expected) == 1 else [expected]
        )


def last_program(text: str) -> str | None:
    """The last closed ```python block of an answer; without any, the last closed block that names no language."""
    program = last_block(text, _PYTHON)
    program = last_block(text, [""]) if program is None else program
    return None if program is None or len(program) > MAX_PROGRAM else program


def read_cases(task: dict[str, Any]) -> CaseSet:
    """The cases of a task, or a `TaskError` that names what is wrong with it."""
    stored = task.get("test_cases", task.get("input_output"))
    if stored is None:
        metadata = task.get("verifier_metadata")
        stored = metadata.get("unit_tests") if isinstance(metadata, dict) else None
    if isinstance(stored, str):
        stored = _decoded(stored)
    if isinstance(stored, list) and all(isinstance(case, dict) for case in stored):
        stored = {"inputs": [case.get("input") for case in stored], "outputs": [case.get("output") for case in stored]}
    if not isinstance(stored, dict):
        raise TaskError('no "test_cases" in the task; it is {"inputs": […], "outputs": […]}')
    inputs, outputs = _listed(stored, "input"), _listed(stored, "output")
    if len(inputs) != len(outputs):
        raise TaskError(f'"test_cases": {len(inputs)} inputs for {len(outputs)} outputs')
    if all(output is None or (isinstance(output, str) and not output.strip()) for output in outputs):
        raise TaskError('"test_cases": every output is empty, so a program that does nothing would pass')
    name = task.get("entry_point") or stored.get("fn_name")
    if name is None:
        printed = [_text(each, "output") for each in outputs]
        return CaseSet([_text(each, "input") for each in inputs], printed, None, wrapped=False)
    if not isinstance(name, str) or not name.isidentifier():
        raise TaskError(f'"entry_point" must be the name of a function, not {name!r:.80}')
    if not all(isinstance(each, list) for each in inputs):
        raise TaskError('"test_cases": with "entry_point" each input is a list of arguments')
    return CaseSet(inputs, outputs, name, wrapped=not task.get("entry_point"))


def _listed(stored: dict[str, Any], name: str) -> list[Any]:
    values = stored.get(f"{name}s", stored.get(name))
    if not isinstance(values, list) or not values:
        raise TaskError(f'"test_cases": no "{name}s", which is a list with at least one case')
    return values


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TaskError(f'"test_cases" is a text, but not JSON: {error}') from error


def _text(value: Any, name: str) -> str:
    """What is read or printed; some data has it as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise TaskError(f'"test_cases": an {name} is a text unless there is an "entry_point", not {value!r:.80}')
    return value
