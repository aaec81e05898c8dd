"""Two rollouts of a task side by side."""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError


def pair_page(a: Any, b: Any) -> dict[str, Any]:
    raise InputError("not there yet")


def pair_of_task(*args: Any) -> str:
    raise InputError("not there yet")
