"""Configuration: files < env.yaml < command line, merged once into one `Config` that does not change."""

from __future__ import annotations

from velodrome.settings.blocks import Config, Instance
from velodrome.settings.files import find_file
from velodrome.settings.load import load
from velodrome.settings.masking import is_secret_key, mask, mask_text, secrets_in
from velodrome.settings.names import KINDS, hint, nearest

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
    return secrets_in(config.plain())
