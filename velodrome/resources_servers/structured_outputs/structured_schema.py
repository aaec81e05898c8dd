"""The schema of a task, and whether a value is valid. Nothing is fetched: a `$ref` leads inside the schema or nowhere.

A pattern may take for ever on a text, and a schema that refers to itself may try exponentially many ways. Such schemas,
and long values, are checked in a process that can be ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from velodrome.errors import TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment
from velodrome.resources_servers.stated import shown

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Json = dict[str, Any]

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
    """Whether checking a short value against it takes little time, whatever the value."""
    return all(name not in UNBOUNDED for name, _ in keywords(orjson.loads(text)))


def problems(text: bytes, value: Any, formats: bool) -> list[str]:
    """What is wrong with a value, the first few of it; nothing if it is valid."""
    try:
        errors = list(islice(validator_of(text, formats).iter_errors(value), MAX_PROBLEMS))
    except RecursionError:
        raise TaskError('"schema" refers to itself without end') from None
    except OverflowError:  # of `multipleOf` with a whole number that no float holds
        return ["$: a number is too large"]
    return [str(shown(f"{error.json_path}: {error.message[:200]}")) for error in errors]


class SchemaCheck(Environment):
    """The check in a process of its own; the task is the schema's text, the value and whether formats count."""

    async def verify(self, task: Json, response: Response) -> Json:
        """What `problems` gives."""
        found = problems(task["text"], task["value"], task["formats"])
        return {"reward": float(not found), "problems": found}
