"""The work of a run as an object that can be sent to other processes: it creates the function that runs jobs.

    work.connect(around)(job) -> Attempt      # here, or in a worker that received the work as bytes

A worker rebuilds its components from their settings. `shared` components stay in the parent, which serves them on
loopback; the workers call them there.
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
    """Creates attempts. `connect` creates the components; `aclose` closes them."""

    def connect(self, around: Json) -> RunJob:
        """The function that runs one job. `around` is written into its rows."""
        ...

    async def aclose(self) -> None:
        """Close the components."""
        ...


@dataclass(frozen=True)
class Collecting:
    """Run tasks with agents. `recorded` requests the spans of servers for a trace; `recording` stores model answers."""

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
async def packed(work: Any, host: str = "127.0.0.1") -> AsyncIterator[bytes]:
    """Work as bytes for another process. Shared components are served as long as the block runs.

    `host` is the address of this machine at which the other process reaches it.
    """
    shared: dict[int, Component] = {}

    def collect(component: Component) -> str:
        shared[id(component)] = component
        return "shared"

    _pack(work, collect)
    async with AsyncExitStack() as serving:
        addresses = {}
        if shared:
            from velodrome.serving.hosting import kind_of, served

            for name, component in shared.items():
                token = secrets.token_urlsafe(32)
                url = await serving.enter_async_context(served(component, host=host, token=token))
                addresses[name] = (kind_of(component), url, token)
        yield _pack(work, lambda component: addresses[id(component)])


def unpack(data: bytes) -> Any:
    """Unpack the bytes of `packed` in another process. They come from the parent, so they are trusted."""
    return _Unpickler(io.BytesIO(data)).load()


def _pack(work: Any, address: Callable[[Component], Any]) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # its module has no types
        def persistent_id(self, value: Any) -> Any:
            return address(value) if isinstance(value, Component) and value.shared else None

    file = io.BytesIO()
    try:
        Pickler(file).dump(work)
    except Exception as error:
        raise InputError(
            f"workers: the agent cannot be sent to another process: {describe(error)}; "
            "hint: make its parts by keyword, or open what cannot be copied in setup()"
        ) from error
    return file.getvalue()


class _Unpickler(pickle.Unpickler):
    """Replaces each shared component with a client."""

    def persistent_load(self, address: Any) -> Any:
        from velodrome.serving.remote import client_of

        return client_of(*address)
