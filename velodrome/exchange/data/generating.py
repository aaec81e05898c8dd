"""Tasks of a procedural environment, by seed: streamed, split without leaks, whole or absent.

An environment is procedural if it has `generate(self, seed, index, *, …) -> task`. A task is decided by its seed and
index alone, so the file is the same with any number of processes. Every process has the same order of sets
(PYTHONHASHSEED=0). What the model sees of a task decides its split, so equal tasks are never in two; the first of equal
ones is kept. Of a task a 64-bit hash stays in memory.
"""

from __future__ import annotations

import inspect
import os
import pickle
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from velodrome.children import Child, spawn
from velodrome.errors import InputError
from velodrome.exchange.data.generate_worker import TARGET, GenerateWork
from velodrome.exchange.export.split_files import parse_shares
from velodrome.machine import cores
from velodrome.records.outfile import OutFile, refuse_existing
from velodrome.serving.components import component_class
from velodrome.settings import Instance, hint
from velodrome.settings.model import Settings
from velodrome.settings.names import RESOURCES
from velodrome.settings.values import MOST_WORKERS, Count, JsonlFile, Names, Seed

Json = dict[str, Any]

_CHUNK = 100  # tasks in one frame
_AHEAD = 2  # frames that a process may be ahead


class GenerateOptions(Settings):
    """The options of `velo data generate`."""

    n: Count = Field(description="how many tasks to generate; equal ones are written once")
    output: JsonlFile = Field(description="the file to write (.jsonl or .jsonl.zst); with a split, one beside it each")
    seed: Seed = Field(0, description="decides every task, together with its number")
    split: Names = Field((), description="parts and shares, as [train:0.9,validation:0.1]: FILE.train.jsonl, …")
    num_workers: Count | None = Field(None, le=MOST_WORKERS, description="processes that generate [one per core]")
    overwrite: bool = Field(False, description="replace existing files")


@dataclass
class GenerateResult:
    """How many tasks were generated, and the files with their counts."""

    generated: int = 0
    duplicates: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> Json:
        """The result as it is printed."""
        return {"generated": self.generated, "duplicates": self.duplicates, "tasks": self.files}


def generator_of(name: str, cwd: Path) -> type[Any]:
    """The class of an environment that generates tasks."""
    owner = component_class(Instance(name, RESOURCES, name, {}, RESOURCES), cwd)
    if not callable(getattr(owner, "generate", None)):
        raise InputError(f"{name}: not a procedural environment; it has no generate(self, seed, index) (docs/data.md)")
    return owner


def option_names(owner: type[Any]) -> list[str]:
    """The options that an environment's `generate` takes."""
    parameters = inspect.signature(owner.generate).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


def checked_options(owner: type[Any], options: Json) -> Json:
    """The options as `generate` wants them; every mistake is a line."""
    hints, known, problems, result = get_type_hints(owner.generate), option_names(owner), [], {}
    for name, value in options.items():
        if name not in known:
            problems.append(f"+{name}: no such option of {owner.__name__}.generate{hint(name, known)}")
            continue
        try:
            result[name] = TypeAdapter(hints.get(name, Any)).validate_python(value)
        except ValidationError as error:
            problems.append(f"+{name}: {error.errors()[0]['msg']}")
    if problems:
        raise InputError(*problems)
    return result


async def generate_tasks(
    name: str, order: GenerateOptions, options: Json, *, tell: Callable[[int], object] = lambda count: None
) -> GenerateResult:
    """Write the tasks. `tell` is called with the number of tasks generated since the last time."""
    cwd = Path.cwd()
    owner = generator_of(name, cwd)
    work = GenerateWork(name, str(cwd), order.seed, checked_options(owner, options))
    parts = _parts(order)
    refuse_existing([path for path, _ in parts], [], overwrite=order.overwrite)
    result, seen = GenerateResult(files={str(path): 0 for path, _ in parts}), set[int]()
    with ExitStack() as stack:
        outs = [(stack.enter_context(OutFile(path)), below) for path, below in parts]
        async for lines in _lines(work, order):
            for content, line in lines:
                result.generated += 1
                if content in seen:
                    result.duplicates += 1
                    continue
                seen.add(content)
                out = next(out for out, below in outs if content < below)
                out.write(line)
                result.files[str(out.path)] += 1
            tell(len(lines))
        for out, _ in outs:
            out.commit()
    return result


async def _lines(work: GenerateWork, order: GenerateOptions) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Chunks in their order, made by all processes in turn."""
    starts = range(0, order.n, _CHUNK)
    size = min(order.num_workers or cores(), len(starts))
    environ = {**os.environ, "PYTHONHASHSEED": "0"}
    async with AsyncExitStack() as stack:
        children = []
        for _ in range(size):
            children.append(await spawn(TARGET, pickle.dumps(work), env=environ))
            stack.push_async_callback(children[-1].close, 0)
        waiting: deque[Child] = deque()
        for at, start in enumerate(starts):
            child = children[at % size]
            child.send(pickle.dumps((start, min(order.n, start + _CHUNK))))
            waiting.append(child)
            if len(waiting) > size * _AHEAD:
                yield await _received(waiting.popleft())
        while waiting:
            yield await _received(waiting.popleft())


async def _received(child: Child) -> list[tuple[int, bytes]]:
    data = await child.receive()
    if data is None:
        raise InputError(f"a process that generates tasks ended with {child.ending}; nothing is written")
    problem, lines = pickle.loads(data)
    if problem:
        raise InputError(f"{problem}; nothing is written")
    return list(lines)


def _parts(order: GenerateOptions) -> list[tuple[Path, int]]:
    """Each file, and below which hash a task belongs to it."""
    if not order.split:
        return [(order.output, 1 << 64)]
    shares, note = parse_shares(",".join(order.split))
    if note:
        raise InputError(f"+{note.partition(';')[0]}")
    base, dot, suffix = order.output.name.partition(".jsonl")
    parts, below = [], 0.0
    for name, share in shares.items():
        below += share
        parts.append((order.output.with_name(f"{base}.{name}{dot}{suffix}"), int(below * (1 << 64))))
    return [*parts[:-1], (parts[-1][0], 1 << 64)]
