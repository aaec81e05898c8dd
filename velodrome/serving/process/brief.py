"""What a worker must know, handed to it in a private file.

Secrets are in that file and nowhere else: not in arguments, not in the environment. A worker gets its own block; of
the others it gets addresses.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

HEAD = "head_server"  # the kind and the name of the head

Json = dict[str, Any]


@dataclass(frozen=True)
class Brief:
    """One worker of one server."""

    name: str
    kind: str
    implementation: str
    settings: Json
    source: str
    index: int
    sockets: list[int]
    alive_fd: int
    peers: list[str]
    key: str
    blocks: dict[str, Json] = field(default_factory=dict)  # what it refers to: {kind, settings}
    urls: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    max_body_bytes: int = 64 * 1024 * 1024
    body_timeout_s: float = 60.0
    cors_origins: list[str] = field(default_factory=list)
    allowed_hosts: list[str] = field(default_factory=list)
    drain_s: float = 10.0
    connections: Json = field(default_factory=dict)
    verbose: bool = False
    profiling: Json = field(default_factory=dict)
    state: str = ""  # for the head: the file that says who runs
    config_yaml: str = ""  # for the head: the configuration, masked

    def write(self, path: Path) -> None:
        """Replace the file in one step; only its owner can read it."""
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(orjson.dumps(asdict(self), option=orjson.OPT_NON_STR_KEYS))
        os.replace(part, path)

    @staticmethod
    def read(path: Path) -> Brief:
        """As written."""
        return Brief(**orjson.loads(path.read_bytes()))


def problems_file(brief: Path) -> Path:
    """Where a worker leaves the lines of an `InputError`, for the supervisor to pass on."""
    return brief.with_suffix(".problems")
