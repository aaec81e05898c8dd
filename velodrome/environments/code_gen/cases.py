"""The program of an answer, and the test cases of a task in the formats of common data sets.

`test_cases` (or `input_output`, as in APPS) is `{"inputs": […], "outputs": […]}`, a list of `{"input": …,
"output": …}`, or either as JSON text. With `entry_point` (or `fn_name` among the cases) an input is the list of a
call's arguments.

The output or the returned value is compared with the expected one outside the sandbox.

Printed: spaces at the end of a line and empty lines at the end of the text do not count. An expected number
with a decimal point or an exponent may differ by `tolerance`, absolutely or relatively; whole numbers are exact.
Returned: JSON values; tuples have become lists, and a truth value is never a number. A float may stand for a whole
number only within the rounding error of floats.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from velodrome.errors import TaskError
from velodrome.resources_servers.answers import last_block

MAX_PROGRAM = 1 << 18  # characters
_PYTHON = ("python", "python3", "py")


@dataclass(frozen=True)
class CaseSet:
    """The inputs, which go into the sandbox, and the expected outputs, which stay outside."""

    inputs: list[Any]
    outputs: list[Any]
    entry_point: str | None
    wrapped: bool  # APPS writes the value 3 as [3] for some tasks and as 3 for others

    def accepted(self, expected: Any) -> list[Any]:
        """The values that count as the expected one."""
        return (
            [expected, *expected] if self.wrapped and isinstance(expected, list) and len(expected) == 1 else [expected]
        )


def last_program(text: str) -> str | None:
    """The last closed ```python block of an answer; if it has none, the last closed block without a language."""
    program = last_block(text, _PYTHON)
    program = last_block(text, [""]) if program is None else program
    return None if program is None or len(program) > MAX_PROGRAM else program


def read_cases(task: dict[str, Any]) -> CaseSet:
    """The cases of a task. Raises a `TaskError` that describes the problem."""
    stored = task.get("test_cases", task.get("input_output"))
    if stored is None:
        metadata = task.get("verifier_metadata")
        stored = metadata.get("unit_tests") if isinstance(metadata, dict) else None
    if isinstance(stored, str):
        stored = _parse_json(stored)
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


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise TaskError(f'"test_cases" is a text, but not JSON: {error}') from error


def _text(value: Any, name: str) -> str:
    """The text of an input or output, which may be a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise TaskError(f'"test_cases": an {name} is a text unless there is an "entry_point", not {value!r:.80}')
    return value


Whitespace = Literal["lines", "tokens"]

_DECIMAL = re.compile(r"[-+]?(?:\d++\.\d*+|\.\d++|\d++(?=[eE]))(?:[eE][-+]?\d++)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d++\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?", re.ASCII)
_NOT_ROUNDED = 1e-3  # the largest difference of a float from an expected whole number
_EXACT = 2**53  # larger numbers in the data may have been rounded to the nearest float


def same_output(printed: str, expected: str, tolerance: float, whitespace: Whitespace = "lines") -> bool:
    """Whether a program printed the expected text."""
    if whitespace == "tokens":
        return _same_tokens(printed.split(), expected.split(), tolerance)
    answer, expected_tokens = _lines(printed), _lines(expected)
    return len(answer) == len(expected_tokens) and all(
        line == expected_item or _same_tokens(line.split(), expected_item.split(), tolerance, decimals=True)
        for line, expected_item in zip(answer, expected_tokens, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_tokens(answer: list[str], expected_tokens: list[str], tolerance: float, *, decimals: bool = False) -> bool:
    """`decimals`: only lines with a decimal number are compared word by word."""
    if len(answer) != len(expected_tokens) or (decimals and not any(map(_DECIMAL.fullmatch, expected_tokens))):
        return False
    return all(
        word == expected_item
        or bool(
            _DECIMAL.fullmatch(expected_item)
            and _NUMBER.fullmatch(word)
            and _near(float(word), float(expected_item), tolerance)
        )
        for word, expected_item in zip(answer, expected_tokens, strict=True)
    )


def same_value(answer: Any, expected: Any, tolerance: float) -> bool:
    """Whether a function returned the expected value. `answer` was parsed from JSON, so its types are JSON's."""
    if isinstance(expected, dict):
        return (
            isinstance(answer, dict)
            and answer.keys() == expected.keys()
            and all(same_value(answer[key], value, tolerance) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(expected)
            and all(
                same_value(item, expected_item, tolerance) for item, expected_item in zip(answer, expected, strict=True)
            )
        )
    if isinstance(expected, bool) or isinstance(answer, bool) or not isinstance(expected, int | float):
        return type(answer) is type(expected) and bool(answer == expected)
    if not isinstance(answer, int | float):
        return False
    if isinstance(answer, int) and isinstance(expected, float) and abs(expected) > _EXACT:
        return _as_float(answer) == expected
    if isinstance(expected, int) and (isinstance(answer, int) or abs(expected) > _EXACT):
        return answer == expected
    if isinstance(expected, int):
        return abs(answer - expected) <= min(tolerance * max(1.0, abs(expected)), _NOT_ROUNDED)
    return _near(_as_float(answer), _as_float(expected), tolerance)


def _near(answer: float, expected: float, tolerance: float) -> bool:
    if not math.isfinite(answer) or not math.isfinite(expected):
        return answer == expected or (math.isnan(answer) and math.isnan(expected))
    return abs(answer - expected) <= tolerance * max(1.0, abs(expected))


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
