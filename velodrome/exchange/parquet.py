"""pyarrow, imported when a Parquet file is read or written."""

from __future__ import annotations

import importlib
from typing import Any

from velodrome.errors import InputError


def arrow(what: str) -> Any:
    """The package pyarrow; without it an `InputError` says how to get it."""
    try:
        package = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(f"{what}: Parquet needs pyarrow; pip install 'velodrome[parquet]'") from error
    return package
