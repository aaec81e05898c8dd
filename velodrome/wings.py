"""The wings: optional parts of the package. The core never imports a wing; it loads one when it is used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from velodrome.errors import InputError

WINGS = {  # wing -> the extras that install its dependencies
    "connect": "mcp,nemo-gym",
    "environments": "environments",
    "exchange": "parquet",
    "ray_executor": "ray",
    "index": "viewer",
    "telemetry": "otel",
    "training": "train",
    "viewer": "viewer",
}


def has_wing(name: str) -> bool:
    """Whether a wing is installed."""
    return find_spec(f"velodrome.{name}") is not None


def wing(module: str) -> Any:
    """Import a module of a wing, by its name in the package: `connect.adding`."""
    try:
        return import_module(f"velodrome.{module}")
    except ModuleNotFoundError as error:
        extras = WINGS[module.partition(".")[0]]
        raise InputError(
            f'velodrome.{module} needs {error.name}, which is not installed: pip install "velodrome[{extras}]"'
        ) from error
