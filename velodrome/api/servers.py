"""`serve` and `view`: components and pages over HTTP, from inside this process, for as long as a block runs.

A component is served on the caller's loop, the viewer in a thread of its own. Signals are left alone, and no socket,
task or thread is left when the block ends, raises or is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from velodrome.api.call import public_call
from velodrome.api.reading import PathLike, checked_files, named_files
from velodrome.contracts import as_agent, as_model, as_resources
from velodrome.errors import InputError, ServerError, VelodromeError, needs_extra


@public_call
@asynccontextmanager
async def serve(
    component: Any = None,
    *,
    model: Any = None,
    agent: Any = None,
    environment: Any = None,
    name: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> AsyncIterator[str]:
    """Serve a live agent, model or environment over HTTP; yields its URL.

    `model=` and `agent=` also take what `collect` takes for one: a function, or an object with the one method that
    matters. The component stays open: it belongs to the caller. Port 0 is any free port; a host beyond loopback needs a
    token.
    """
    from velodrome.serving.hosting import served

    named = {"model": (model, as_model), "agent": (agent, as_agent), "environment": (environment, as_resources)}
    live = [convert(thing) for thing, convert in named.values() if thing is not None]
    live += [component] if component is not None else []
    if inspect.isroutine(component):
        raise InputError(f"serve: say what {component.__name__} is: serve(model=…) or serve(agent=…)")
    if inspect.isclass(component):
        raise InputError(f"serve: expected a component, not the class {component.__name__}; make one of it first")
    if len(live) != 1:
        raise InputError("serve: give one component, or one of model=, agent= and environment=")
    original = getattr(live[0], "__wrapped__", live[0])  # of a function
    async with served(
        live[0], name=name or getattr(original, "__name__", ""), host=host, port=port, token=token
    ) as url:
        yield url


class Viewer:
    """A viewer that runs until `close()`, or until the end of its `with` block. `url` is its address."""

    def __init__(self, files: Sequence[Path], *, host: str, port: int, token: str | None) -> None:
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(files, host, port, token, started), name="velo view")
        self._thread.daemon = True  # a viewer that nobody closed does not keep the program
        self._thread.start()
        self.url = started.result()

    def _run(self, files: Sequence[Path], host: str, port: int, token: str | None, started: Future[str]) -> None:
        async def serving() -> None:
            with needs_extra("view", "viewer"):
                from velodrome.viewer.serve import viewing
            self._loop = asyncio.get_running_loop()
            async with viewing(files, host=host, port=port, token=token) as url:
                started.set_result(url)
                await self._stop.wait()

        try:
            asyncio.run(serving())
        except (VelodromeError, OSError) as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            if not started.done():
                started.set_exception(ServerError("the viewer did not start"))

    def close(self) -> None:
        """Stop the viewer. Closing twice is fine."""
        if self._thread.is_alive() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.url!r})"


@public_call
def view(
    rollouts: PathLike | Iterable[PathLike], *, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> Viewer:
    """Start the viewer over some rollouts files or folders, in a thread of its own; `.url` is its address.

    It follows the files while they grow, and runs until `.close()` or the end of a `with` block.
    """
    paths = named_files(rollouts)
    if not any(path.is_dir() for path in paths):
        checked_files(paths)
    return Viewer(paths, host=host, port=port, token=token)
