"""Read a `.wandb` file: records of protobuf in LevelDB's log format (blocks of 32 KiB), after a header of 7 bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BLOCK, _HEADER = 32_768, struct.Struct("<IHB")  # checksum, length, kind
_FULL, _LAST = 1, 4


def _records(data: bytes) -> Iterator[bytes]:
    place, part = 7, b""
    while place + _HEADER.size <= len(data):
        rest = _BLOCK - place % _BLOCK
        if rest < _HEADER.size:
            place += rest
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        place += _HEADER.size
        part += data[place : place + length]
        place += length
        if kind in (_FULL, _LAST):
            yield part
            part = b""


def read_wandb(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The configuration and the rows of the history."""
    from wandb.proto.wandb_internal_pb2 import Record

    config: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for data in _records(path.read_bytes()):
        record: Any = Record.FromString(data)
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
        if record.history.item:
            items = ((item.key or "/".join(item.nested_key), item.value_json) for item in record.history.item)
            rows.append({key: json.loads(value) for key, value in items})
    return config, rows
