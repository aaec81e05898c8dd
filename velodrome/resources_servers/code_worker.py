"""The worker process of an environment: it has a copy of the environment and runs one call at a time.

The answer to a call is its result or error, with the CPU time and memory that it used. If the process ends, the parent
reports it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import pickle
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from velodrome.children import ParentChannel
from velodrome.errors import (
    AgentError,
    InputError,
    ModelError,
    RolloutError,
    TaskError,
    ToolError,
    VerifyError,
    describe,
    place_of,
)

TARGET = f"{__name__}:serve"
is_worker = False  # whether this process is a worker
_KINDS: dict[str, type[RolloutError]] = {
    kind.boundary: kind for kind in (ModelError, ToolError, VerifyError, AgentError, TaskError)
}
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class WorkerCopy:
    """The recipe for a worker's environment: the pickled class and settings, and the file that defines the class."""

    pickled: bytes
    module: str
    file: str | None


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The result of one call, or the boundary, text and place of its error. The first answer reports the start."""

    result: Any = None
    boundary: str = ""
    message: str = ""
    place: str | None = None
    cpu_us: int = 0
    memory_mb: float = 0.0

    def value(self) -> Any:
        """Return the result or raise the error."""
        if not self.boundary:
            return self.result
        error = _KINDS[self.boundary](self.message)
        error.place = self.place
        raise error


def memory_mb(pid: int | str = "self") -> float:
    """The resident size of a process; 0 if the system does not provide it."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_MB
    except (OSError, IndexError):
        return 0.0


def cpu_s(pid: int) -> float:
    """The CPU time that a process has used; 0 if the system does not provide it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            user, system = file.read().rpartition(b")")[2].split()[11:13]
    except (OSError, ValueError):
        return 0.0
    return (int(user) + int(system)) / _TICKS


def serve(channel: ParentChannel) -> None:
    """Create the environment, report the start, and answer calls until the parent closes the channel."""
    global is_worker
    is_worker = True
    copy: WorkerCopy = pickle.loads(channel.receive() or b"")
    try:
        environment = _make_environment(copy)
    except BaseException as error:  # noqa: BLE001 - reported to the parent, which raises it
        message = str(error) if isinstance(error, InputError) else describe(error)
        channel.send(pickle.dumps(WorkerAnswer(message=message, place=place_of(error, anywhere=False))))
        return
    channel.send(pickle.dumps(WorkerAnswer(memory_mb=memory_mb())))
    with asyncio.Runner() as runner:
        while (data := channel.receive()) is not None:
            channel.send(pickle.dumps(_run_call(runner.get_loop(), environment, *pickle.loads(data))))
        runner.run(environment.aclose())


def _make_environment(copy: WorkerCopy) -> Any:
    if copy.file is not None:
        _load(copy.module, copy.file)
    owner, settings = pickle.loads(copy.pickled)
    return owner(**settings)


def _load(module: str, file: str) -> None:
    """Import the module of the class by its name, or else from its file."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        spec = importlib.util.spec_from_file_location(module, file, submodule_search_locations=[os.path.dirname(file)])
        if spec is None or spec.loader is None:
            raise
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])


def _run_call(
    loop: asyncio.AbstractEventLoop, environment: Any, method: str, arguments: tuple[Any, ...]
) -> WorkerAnswer:
    began = time.process_time()
    try:
        answer = WorkerAnswer(loop.run_until_complete(getattr(environment, method)("", *arguments)))
    except RolloutError as error:
        answer = WorkerAnswer(boundary=error.boundary, message=str(error), place=error.place)
    except BaseException as error:  # noqa: BLE001 - carried to the parent: foreign code ends no worker by raising
        where = "verify" if method == "score" else "tool"
        answer = WorkerAnswer(boundary=where, message=f"{where}: {describe(error)}", place=place_of(error))
    return replace(answer, cpu_us=round((time.process_time() - began) * 1e6), memory_mb=memory_mb())
