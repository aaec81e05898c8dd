"""Several runs beside each other."""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError

MOST_RUNS = 12


def several_page(*args: Any) -> dict[str, Any]:
    raise InputError("not there yet")
