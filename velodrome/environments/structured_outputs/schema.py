"""The one JSON value of an answer, its content and its schema. Text that a lenient reader would mend is refused.

`expected` of a task is an object from JSON pointers to what must be there.

Nothing is fetched: a `$ref` of a schema leads inside the schema or nowhere.

A pattern may take for ever on a text, and a schema that refers to itself may try exponentially many ways. Such schemas,
and long values, are checked in a process that can be ended.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from velodrome.environments.code_gen.cases import same_value
from velodrome.errors import TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.answers import shortened, words
from velodrome.resources_servers.environment import Environment

MAX_DEPTH = 64
NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
FENCE = re.compile(r"^[ \t]{0,3}```[ \t]*(\w*)[ \t]*\r?$", re.MULTILINE)


class NotOneValue(ValueError):
    """The answer is not exactly one JSON value; the text says why."""


def json_text(answer: str, *, around: bool) -> str:
    """The JSON of an answer: all of it, or the only fenced block; text around that block only if it is allowed."""
    text = answer.rpartition("</think>")[2].strip()
    fences = list(FENCE.finditer(text))
    if not fences:
        return text
    if len(fences) != 2 or fences[0][1].lower() not in ("", "json") or fences[1][1]:
        raise NotOneValue("not exactly one fenced block of JSON")
    if not around and (text[: fences[0].start()].strip() or text[fences[1].end() :].strip()):
        raise NotOneValue("there is text around the fenced block")
    return text[fences[0].end() : fences[1].start()].strip()


def json_value(text: str, max_bytes: int) -> Any:
    """The value of a JSON text, strictly: no key twice, no NaN, no endless numbers, bounded in size and depth."""
    if len(text) > max_bytes or len(text.encode(errors="replace")) > max_bytes:
        raise NotOneValue(f"longer than {max_bytes} bytes")
    if depth(text) > MAX_DEPTH:
        raise NotOneValue(f"nested more than {MAX_DEPTH} deep")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise NotOneValue(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeEncodeError:
        raise NotOneValue("not valid Unicode (a lone surrogate)") from None
    except NotOneValue:
        raise
    except ValueError:
        raise NotOneValue("a number with too many digits") from None
    return value


def depth(text: str) -> int:
    """How deep brackets are nested, outside of strings."""
    now = deepest = 0
    for match in NESTING.finditer(text):
        token = match.group()
        now += 1 if token in "[{" else -1 if token in "]}" else 0
        deepest = max(deepest, now)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotOneValue("an object has a key twice")
    return value


def _refused(name: str) -> Any:
    raise NotOneValue(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotOneValue("a number is not finite")
    return value


Json = dict[str, Any]

MISSING = object()


def same_json(value: Any, expected: Any) -> bool:
    """Equal as JSON: 1 is 1.0, true is not 1, keys have no order."""
    return same_value(value, expected, tolerance=0.0)


def in_any_order(value: Any, expected: Any) -> bool:
    """The same items, however they are ordered."""
    if not isinstance(value, list) or len(value) != len(expected):
        return False
    left = list(expected)
    for item in value:
        at = next((at for at, other in enumerate(left) if same_json(item, other)), None)
        if at is None:
            return False
        left.pop(at)
    return True


def _said(text: str) -> str:
    """The words; of a text that has none, such as `->`, the text."""
    return words(text) or text.strip()


CHECKS: Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool]]] = {
    "$text": (str, lambda value, wanted: isinstance(value, str) and _said(value) == _said(wanted)),
    "$contains": (str, lambda value, wanted: isinstance(value, str) and f" {words(wanted)} " in f" {words(value)} "),
    "$one_of": (list, lambda value, wanted: any(same_json(value, each) for each in wanted)),
    "$any_order": (list, in_any_order),
}


def checks_of(task: Mapping[str, Any]) -> dict[str, Any]:
    """The task's `expected`, checked; empty if it has none."""
    expected = task.get("expected")
    if expected is None:
        return {}
    if not isinstance(expected, dict) or not expected:
        raise TaskError('"expected" must be an object from JSON pointers to values, such as {"/name": "Ada"}')
    for pointer, wanted in expected.items():
        if pointer and not pointer.startswith("/"):
            raise TaskError(f'"expected": {pointer[:80]!r} is not a JSON pointer; write "/{pointer[:80]}"')
        name = operator(wanted)
        if name is not None and not (name in CHECKS and isinstance(wanted[name], CHECKS[name][0])):
            raise TaskError(f'"expected": {pointer[:80]!r}: {str(wanted)[:80]} is not one of {", ".join(CHECKS)}')
    return expected


def operator(wanted: Any) -> str | None:
    """The name of the check, if it is not plain equality."""
    if isinstance(wanted, dict) and len(wanted) == 1:
        name = next(iter(wanted))
        return str(name) if name.startswith("$") else None
    return None


def met(value: Any, pointer: str, wanted: Any) -> bool:
    """Whether what is at the pointer is what is wanted."""
    there = at(value, pointer)
    name = operator(wanted)
    if there is MISSING:
        return False
    return same_json(there, wanted) if name is None else CHECKS[name][1](there, wanted[name])


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to, or MISSING."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_SCHEMA_BYTES = 64 << 10
MAX_PROBLEMS = 5
SHORT_BYTES = 16 << 10
UNBOUNDED = frozenset(("pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "uniqueItems", "format"))


def schema_text(task: Mapping[str, Any]) -> bytes:
    """The schema of a task as text: the object `schema`, or the text `schema_str`."""
    schema = task.get("schema")
    if schema is None and isinstance(task.get("schema_str"), str):
        try:
            schema = orjson.loads(task["schema_str"])
        except orjson.JSONDecodeError as error:
            raise TaskError(f'"schema_str" is not JSON: {error}') from None
    if not isinstance(schema, dict):
        raise TaskError('no "schema" in the task; it is a JSON Schema, an object ("schema_str": the same as text)')
    try:
        text = orjson.dumps(schema)
    except orjson.JSONEncodeError as error:
        raise TaskError(f'"schema" is not JSON: {error}') from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise TaskError(f'"schema" has {len(text)} bytes; at most {MAX_SCHEMA_BYTES} are taken')
    return text


@lru_cache(maxsize=512)
def validator_of(text: bytes, formats: bool) -> Validator:
    """The validator of a schema that was checked: a known dialect, valid, its references inside, its patterns sound."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    schema = orjson.loads(text)
    dialect = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    kind = validator_for({"$schema": dialect}, default=None)
    if kind is None:
        raise TaskError(f'"schema": its $schema {str(dialect)[:80]!r} is not a dialect that is known here')
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise TaskError(f'"schema" is not a JSON Schema: {error.json_path}: {error.message[:200]}') from None
    except RecursionError:
        raise TaskError('"schema" is nested too deep') from None
    validator = kind(schema, registry=REGISTRY, format_checker=FormatChecker() if formats else None)
    for name, value in keywords(schema):
        if name in ("$ref", "$dynamicRef") and isinstance(value, str):
            if not value.startswith("#"):
                raise TaskError(f'"schema": $ref {value[:80]!r} leads elsewhere, and nothing is fetched; use "$defs"')
            try:
                validator._resolver.lookup(value)
            except Unresolvable:
                raise TaskError(f'"schema": $ref {value[:80]!r} leads nowhere') from None
        for pattern in [value] if name == "pattern" else value if name == "patternProperties" else ():
            _compile(pattern)
    return validator


def _compile(pattern: Any) -> None:
    try:
        re.compile(pattern)
    except (re.error, TypeError, RecursionError, OverflowError) as error:
        raise TaskError(f'"schema": the pattern {str(pattern)[:80]!r} cannot be used: {error}') from None


def keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every key in a schema with its value, those of nested schemas too."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from part.items()
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


@lru_cache(maxsize=512)
def is_bounded_schema(text: bytes) -> bool:
    """Whether checking any short value against it takes little time."""
    return all(name not in UNBOUNDED for name, _ in keywords(orjson.loads(text)))


def problems(text: bytes, value: Any, formats: bool) -> list[str]:
    """What is wrong with a value, the first few of it; nothing if it is valid."""
    try:
        errors = list(islice(validator_of(text, formats).iter_errors(value), MAX_PROBLEMS))
    except RecursionError:
        raise TaskError('"schema" refers to itself without end') from None
    except OverflowError:  # of `multipleOf` with a whole number that no float holds
        return ["$: a number is too large"]
    return [str(shortened(f"{error.json_path}: {error.message[:200]}")) for error in errors]


class SchemaCheck(Environment):
    """The check in a separate process; the task is the schema's text, the value and whether formats count."""

    async def verify(self, task: Json, response: Response) -> Json:
        """What `problems` gives."""
        reasons = problems(task["text"], task["value"], task["formats"])
        return {"reward": float(not reasons), "problems": reasons}
