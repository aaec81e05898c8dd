"""A process that generates ranges of tasks as lines, each with a hash of its request."""

from __future__ import annotations

import hashlib
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from velodrome.children import ParentChannel
from velodrome.errors import InputError, TaskError, describe, place_of
from velodrome.records.task import parse_task
from velodrome.serving.components import component_class
from velodrome.settings import Instance
from velodrome.settings.names import RESOURCES

TARGET = f"{__name__}:serve"
_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


@dataclass(frozen=True, slots=True)
class GenerateWork:
    """The work of a process: the environment, by its name and search folder, the seed and the options."""

    environment: str
    cwd: str
    seed: int
    options: dict[str, Any]


def serve(channel: ParentChannel) -> None:
    """Answer each range with a problem or with lines, until the parent closes the channel."""
    work: GenerateWork = pickle.loads(channel.receive() or b"")
    environment: Any = None
    while (data := channel.receive()) is not None:
        start, end = pickle.loads(data)
        index = start
        try:
            environment = environment or _make_environment(work)
            lines = []
            for index in range(start, end):
                lines.append(_line(environment.generate(work.seed, index, **work.options)))
            channel.send(pickle.dumps(("", lines)))
        except (InputError, TaskError, ValueError) as error:
            channel.send(pickle.dumps((f"task {index}: {error}", [])))
        except Exception as error:  # noqa: BLE001 - carried to the parent: foreign code
            place = place_of(error, anywhere=False)
            channel.send(pickle.dumps((f"task {index}: {describe(error)}{f' ({place})' if place else ''}", [])))


def _make_environment(work: GenerateWork) -> Any:
    owner = component_class(Instance(work.environment, RESOURCES, work.environment, {}, RESOURCES), Path(work.cwd))
    return owner(**owner.example_settings())


def _line(task: dict[str, Any]) -> tuple[int, bytes]:
    line = orjson.dumps(task, option=_LINE)
    parse_task(line)
    seen = orjson.dumps(task["responses_create_params"], option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(hashlib.blake2b(seen, digest_size=8).digest()), line
