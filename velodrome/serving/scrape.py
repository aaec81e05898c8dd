"""`/metrics` of a program that is no server: one small answer on loopback, from a thread of its own.

The thread does not share the event loop, so a loop that is stuck can still be seen to be.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from velodrome.errors import InputError
from velodrome.serving.callers import Callers
from velodrome.timing.exposition import CONTENT_TYPE, PATH

HOST = "127.0.0.1"

_CALLERS = Callers()
_SILENCE_S = 5.0
_LOOK_S = 0.1  # how often the thread looks whether it should end


class ScrapeServer:
    """Answers with what `render` returns, from now until it is closed. Port 0 takes a free one."""

    def __init__(self, port: int, render: Callable[[], bytes]) -> None:
        handler = type("Handler", (_Handler,), {"render": staticmethod(render)})
        try:
            self._server = _Server((HOST, port), handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"metrics_port={port}: cannot listen there: {why}; give another, or 0 for a free one"
            ) from (error)
        self.url = f"http://{HOST}:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name="velodrome-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Free the port. An answer that is under way is left to itself. Closing twice is fine."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that went away in the middle is no news."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = _SILENCE_S
    server_version = "velodrome"
    sys_version = ""

    @staticmethod
    def render() -> bytes:
        """What there is to tell."""
        return b""

    def do_GET(self) -> None:
        """The metrics, wherever else one looks: a line that says where they are."""
        refused = _CALLERS.refusal(
            "GET", ((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items())
        )
        found = refused is None and self.path.partition("?")[0] == PATH
        body = self.render() if found else f"{refused.message if refused else f'there is only {PATH} here'}\n".encode()
        self.send_response(200 if found else refused.status if refused else 404)
        self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads a log of scrapes."""
