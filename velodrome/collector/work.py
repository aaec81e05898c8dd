"""What a run does with a job, as an object that can be sent to other processes: it makes the function that runs jobs.

    work.connect(around)(job) -> Attempt      # here, or in a worker that got the work as bytes

A worker makes the components of its copy again from their settings. Those that are `shared` stay with the parent, which
serves them on loopback meanwhile: a worker's copy calls them there.
"""

from __future__ import annotations

import io
import pickle
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from velodrome.collector.agents import Agents
from velodrome.collector.attempt import Attempt, attempt
from velodrome.collector.plan import Job
from velodrome.collector.recording import ModelRecording
from velodrome.errors import InputError, describe
from velodrome.settings.component import Component

Json = dict[str, Any]
RunJob = Callable[[Job], Awaitable[Attempt]]


class Work(Protocol):
    """Makes attempts. `connect` makes the components; `aclose` closes them."""

    def connect(self, around: Json) -> RunJob:
        """The function that runs one job. `around` is written into its rows."""
        ...

    async def aclose(self) -> None:
        """Close what `connect` made."""
        ...


@dataclass(frozen=True)
class Collecting:
    """Run tasks with agents. `recorded` asks servers for their spans, for a trace; `recording` keeps model calls."""

    agents: Agents
    names: Collection[str]
    verify: bool
    recorded: bool
    recording: ModelRecording | None = None

    def connect(self, around: Json) -> RunJob:
        """The function that runs one job."""
        if self.recording is not None:
            self.agents.record(self.names)
        live = self.agents.connect(self.names)
        recording = None if self.recording is None else self.recording.rollout
        return partial(
            attempt, agents=live, verify=self.verify, around=around, recorded=self.recorded, recording=recording
        )

    async def aclose(self) -> None:
        """Close the components of a configuration."""
        await self.agents.aclose()


@asynccontextmanager
async def packed(thing: Any, host: str = "127.0.0.1") -> AsyncIterator[bytes]:
    """Work as bytes for another process. Shared components are served as long as the block runs.

    `host` is the address of this machine at which the other process reaches it.
    """
    shared: dict[int, Component] = {}

    def find(component: Component) -> str:
        shared[id(component)] = component
        return "found"

    _pack(thing, find)
    async with AsyncExitStack() as serving:
        addresses = {}
        if shared:
            from velodrome.serving.hosting import kind_of, served

            for name, component in shared.items():
                token = secrets.token_urlsafe(32)
                url = await serving.enter_async_context(served(component, host=host, token=token))
                addresses[name] = (kind_of(component), url, token)
        yield _pack(thing, lambda component: addresses[id(component)])


def unpack(data: bytes) -> Any:
    """Unpack the bytes of `packed` in another process. They come from the parent, so they are trusted."""
    return _Unpickler(io.BytesIO(data)).load()


def _pack(thing: Any, address: Callable[[Component], Any]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # its module has no types
        def persistent_id(self, thing: Any) -> Any:
            return address(thing) if isinstance(thing, Component) and thing.shared else None

    file = io.BytesIO()
    try:
        Pickler(file).dump(thing)
    except Exception as error:
        raise InputError(
            f"workers: the agent cannot be sent to another process: {describe(error)}; "
            "hint: make its parts by keyword, or open what cannot be copied in setup()"
        ) from error
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    """Puts a client in the place of each shared component."""

    def persistent_load(self, address: Any) -> Any:
        from velodrome.serving.remote import client_of

        return client_of(*address)
