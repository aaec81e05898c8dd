"""Training runs."""

from __future__ import annotations

from typing import Any

from velodrome.errors import InputError


def training_page(*args: Any) -> dict[str, Any]:
    raise InputError("not there yet")


def curves_page(*args: Any) -> dict[str, Any]:
    raise InputError("not there yet")
