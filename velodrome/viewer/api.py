"""`view` and `judgements`: the viewer from Python, and the judgements made in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from velodrome.api.call import public_call
from velodrome.api.reading import PathLike, checked_files, named_files
from velodrome.errors import ServerError, VelodromeError, needs_extra
from velodrome.index import Index, Query
from velodrome.index.judgements import Judgement


class Viewer:
    """A viewer that runs until `close()`, or until the end of its `with` block. `url` is its address."""

    def __init__(self, files: Sequence[Path], *, host: str, port: int, token: str | None) -> None:
        self.url = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        url: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, args=(files, host, port, token, url), name="velo view")
        self._thread.daemon = True  # a viewer that is not closed does not keep the program alive
        self._thread.start()
        self.url = url.result()

    def _run(self, files: Sequence[Path], host: str, port: int, token: str | None, started: Future[str]) -> None:
        """Serve until `close`. `started` gets the address, or the error."""

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
    """Start the viewer over some rollouts files or folders, in its own thread; `.url` is its address.

    It follows the files while they grow, and runs until `.close()` or the end of a `with` block.
    """
    paths = named_files(rollouts)
    if not any(path.is_dir() for path in paths):
        checked_files(paths)
    return Viewer(paths, host=host, port=port, token=token)


@public_call
def judgements(rollouts: PathLike, where: str = "") -> list[Judgement]:
    """The judgements of the rollouts of a file: tags, notes and ratings, with the `key` of the rollout.

    Only the last judgement of each person counts. `where` is a filter, as in `judgements(path, "reward<1 rating>3")`.
    A table of both: `pandas.DataFrame(judgements(path)).merge(read(path).to_pandas(), on="key")`.
    """
    query = Query.parse(where)
    [path] = checked_files([rollouts])
    index = Index(path, judged=True)
    index.refresh()
    matching = {entry.number for entry in index.select(query)} if where else None
    return [judgement for number, judgement in index.judged.pairs() if matching is None or number in matching]
