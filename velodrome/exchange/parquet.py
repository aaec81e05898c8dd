"""pyarrow, imported when a Parquet file is read or written, and decimals that `datasets` reads without a change.

Its JSON reader adds the digits after the point as a product, which rounds 0.3 but not 0.30. It only reads a JSON column
of a Parquet file. It reads JSON lines, writes them with at most ten decimals and without final zeros, and reads them
again.
"""

from __future__ import annotations

import importlib
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError

_MOST_READ = 15  # digits after the point
_MOST_WRITTEN = 10


def decimal(number: float, *, rewritten: bool = False) -> str | None:
    """The digits that `datasets` reads as exactly this number, or None; `rewritten` if it also rewrites them."""
    whole, _, digits = repr(number).partition(".")
    if rewritten and (len(digits) > _MOST_WRITTEN or (whole, digits) == ("-0", "0")):
        return None
    max_digits = len(digits) if rewritten else _MOST_READ
    while digits.isdigit() and len(digits) <= max_digits:
        if abs(int(whole)) + int(digits) * 10.0 ** -len(digits) == abs(number):
            return f"{whole}.{digits}"
        digits += "0"
    return None


def arrow(what: str) -> Any:
    """The package pyarrow. Raises an `InputError` with the install command if it is missing."""
    try:
        package = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{what}: Parquet needs pyarrow; pip install 'velodrome[parquet]'") from error
    return package


def json_columns(schema: Any) -> list[str]:
    """The columns of Arrow's JSON type, which hold values of any shape as text."""
    return [field.name for field in schema if str(field.type) == "extension<arrow.json>"]


def schema_of(package: Any, types: Json) -> Any:
    """The schema of columns, from the types of a data card; a type that contains JSON becomes JSON."""
    return package.schema(
        {
            name: package.json_() if b'"json"' in orjson.dumps(kind) else _arrow_type(package, kind)
            for name, kind in types.items()
        }
    )


def _arrow_type(package: Any, kind: Any) -> Any:
    if isinstance(kind, str):
        return getattr(package, kind)()
    if isinstance(kind, list):
        return package.struct({each["name"]: _arrow_type(package, each) for each in kind})
    return package.list_(_arrow_type(package, kind["list"])) if "list" in kind else _arrow_type(package, kind["dtype"])


def json_text(value: Any) -> str:
    """A value for a JSON column."""
    return orjson.dumps(_readable(value)).decode()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _readable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return orjson.Fragment(decimal(value) or repr(value)) if isinstance(value, float) else value
