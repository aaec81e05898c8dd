"""What a worker must know, handed to it in a private file.

Secrets are in that file and nowhere else: not in arguments, not in the environment. A worker gets its own block; of
the others it gets addresses.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from velodrome.serving.process.options import ServingOptions
from velodrome.settings.model import Settings

HEAD = "head_server"  # the kind and the name of the head


class Brief(Settings):
    """One worker of one server."""

    name: str
    kind: str
    implementation: str
    settings: dict[Any, Any]
    source: str
    host: str
    index: int
    sockets: list[int]
    alive_fd: int
    peers: list[str]
    key: str
    options: ServingOptions
    blocks: dict[str, dict[str, Any]]  # the blocks it refers to: {kind, settings}
    urls: dict[str, str]
    token: str | None
    verbose: bool
    profiles: str | None  # the folder for profiles
    state: str  # for the head: the file with the state of every server
    config_yaml: str  # for the head: the configuration, masked

    def write(self, path: Path) -> None:
        """Replace the file in one step; only its owner can read it."""
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(self.model_dump_json())
        os.replace(part, path)


def problems_file(brief: Path) -> Path:
    """Where a worker leaves the lines of an `InputError`, for the supervisor to pass on."""
    return brief.with_suffix(".problems")
