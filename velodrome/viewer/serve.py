"""Run the viewer: a socket with the app behind it, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from starlette.types import ASGIApp

from velodrome.serving.process.listen import TOKEN_VARIABLE, listening, reachable
from velodrome.serving.web_server import running
from velodrome.viewer.app import make_app


@contextlib.asynccontextmanager
async def viewing(
    files: Sequence[Path], *, host: str, port: int, token: str | None, edit: bool = False, person: str = ""
) -> AsyncIterator[str]:
    """Serve the viewer on this loop while the block runs; yields its URL. Sets no signal handlers."""

    async def app() -> ASGIApp:
        return make_app(files, token=token, host=host, edit=edit, person=person)

    way = f"set {TOKEN_VARIABLE} in the environment, or pass token= from Python"
    with listening("velo view", host, port, token, way=way) as sock:
        async with running(app, [sock], drain_s=1):
            yield f"http://{reachable(host)}:{sock.getsockname()[1]}/"


def serve(
    files: Sequence[Path],
    *,
    host: str,
    port: int,
    token: str | None,
    say: Callable[[str], None],
    look: bool,
    edit: bool = False,
    person: str = "",
) -> None:
    """Serve until Ctrl-C or SIGTERM. `look` opens a browser."""

    async def serving() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with viewing(files, host=host, port=port, token=token, edit=edit, person=person) as url:
            _announce(url, token, say, look)
            await stop.wait()

    asyncio.run(serving())


def _announce(url: str, token: str | None, say: Callable[[str], None], look: bool) -> None:
    asks = "it asks for the token; " if token else ""
    say(f"{url}  ({asks}Ctrl-C ends it)")  # the spaces end the link in a terminal
    if look:
        threading.Thread(target=_open, args=(url, say), daemon=True).start()  # some browsers start slowly


def _open(url: str, say: Callable[[str], None]) -> None:
    if not webbrowser.open(url):
        say("no browser could be opened; open the address in one")
