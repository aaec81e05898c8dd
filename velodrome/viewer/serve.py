"""Run the viewer: a socket on loopback, the app behind it, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn

from velodrome.errors import ServerError
from velodrome.serving.process.listen import UVICORN, listening, reachable
from velodrome.viewer.app import make_app


def serve(
    files: Sequence[Path], *, host: str, port: int, token: str | None, tell: Callable[[str], None], look: bool
) -> None:
    """Answer until told to stop. `look` opens a browser."""
    sock = listening("velo view", host, port, token)
    url = f"http://{reachable(host)}:{sock.getsockname()[1]}/"
    with sock:
        config = uvicorn.Config(make_app(files, token=token, host=host), timeout_graceful_shutdown=1, **UVICORN)
        server = _Server(config, lambda: _told(url, token, tell, look))
        asyncio.run(_serve(server, sock))
    if not server.started:
        raise ServerError("the viewer did not start; -v shows why")


async def _serve(server: _Server, sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    await server.serve(sockets=[sock])


def _told(url: str, token: str | None, tell: Callable[[str], None], look: bool) -> None:
    wanted = "it asks for the token; " if token else ""
    tell(f"{url}  ({wanted}Ctrl-C ends it)")  # a blank first: a terminal's link reaches up to the next one
    if look:
        threading.Thread(target=_open, args=(url, tell), daemon=True).start()  # some browsers take their time


def _open(url: str, tell: Callable[[str], None]) -> None:
    if not webbrowser.open(url):
        tell("no browser could be opened; open the address in one")


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own, which says when it is up."""

    def __init__(self, config: uvicorn.Config, up: Callable[[], None]) -> None:
        super().__init__(config)
        self._up = up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._up()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Take no more, finish what is in flight, end. A second time: at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
