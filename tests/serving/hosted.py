"""Components behind real uvicorn servers in threads of this process, one worker or several behind one port."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import uvicorn
import uvloop
from patience import DEADLINE_S

from velodrome.serving.app import Limits, Status
from velodrome.serving.hosting import server_app


def listening() -> socket.socket:
    """A socket on a free loopback port."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    found.listen(1024)
    return found


def address(sock: socket.socket) -> str:
    return f"http://127.0.0.1:{sock.getsockname()[1]}"


@contextmanager
def hosted(kind: str, make: Callable[[], Any], *, workers: int = 1, limits: Limits | None = None) -> Iterator[str]:
    """The URL of a server with this many workers, each with a component of its own."""
    shared = listening()
    private = [listening() for _ in range(workers)]
    peers = [address(each) for each in private]
    with ExitStack() as stack:
        stack.callback(shared.close)
        for number in range(workers):
            stack.enter_context(_worker(kind, make, number, peers, [shared.dup(), private[number]], limits))
        yield address(shared)


@contextmanager
def _worker(
    kind: str,
    make: Callable[[], Any],
    number: int,
    peers: list[str],
    sockets: list[socket.socket],
    limits: Limits | None,
) -> Iterator[None]:
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        status = Status("hosted", kind, "test")
        app = await server_app(status, make(), limits, key=b"a key for tests", peers=peers, worker=number)
        config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        servers.append(uvicorn.Server(config))
        await servers[0].serve(sockets=sockets)

    def whole() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=whole)
    thread.start()
    deadline = time.monotonic() + DEADLINE_S
    while not (servers and servers[0].started):
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start in time"
        time.sleep(0.005)
    try:
        yield
    finally:
        servers[0].should_exit = True
        thread.join(timeout=DEADLINE_S)
        for sock in sockets:
            sock.close()
        assert not thread.is_alive()
