"""Configuration: files < env.yaml < command line, merged once into one `Config` that nobody changes."""

from __future__ import annotations

from velodrome.config.blocks import Config, Instance
from velodrome.config.files import find_file
from velodrome.config.kinds import KINDS
from velodrome.config.load import load
from velodrome.config.masking import found_secrets, mask, mask_text
from velodrome.config.secret_names import is_secret_key
from velodrome.config.spelling import hint, nearest

__all__ = [
    "KINDS",
    "Config",
    "Instance",
    "find_file",
    "hint",
    "is_secret_key",
    "load",
    "mask",
    "mask_text",
    "nearest",
    "secrets",
]


def secrets(config: Config) -> frozenset[str]:
    """Every secret value in the configuration, for `mask` and `mask_text`."""
    return found_secrets(config.plain())
