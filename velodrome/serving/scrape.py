"""`/metrics` of a program that is not a server: a small HTTP server on loopback, in a separate thread.

The thread does not use the event loop, so it answers even if the loop is stuck.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from velodrome.errors import InputError
from velodrome.serving.callers import Callers
from velodrome.timing.exposition import CONTENT_TYPE, PATH

HOST = "127.0.0.1"

_CALLERS = Callers()
_POLL_S = 0.1  # how often the thread checks whether it should end


class ScrapeServer:
    """Answers with the result of `render` until it is closed. Port 0 means any free port."""

    def __init__(self, port: int, render: Callable[[], bytes]) -> None:
        try:
            self._server = _ThreadedServer((HOST, port), type("Handler", (_Handler,), {"render": staticmethod(render)}))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"metrics_port={port}: cannot listen there: {why}; give another, or 0 for a free one"
            ) from error
        self.url = f"http://{HOST}:{self._server.server_address[1]}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="velodrome-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Free the port, without waiting for answers in flight. It may be called twice."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _ThreadedServer(ThreadingHTTPServer):
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that disconnects in the middle is not an error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0  # of silence
    server_version = "velodrome"
    sys_version = ""
    render: Callable[[], bytes]

    def do_GET(self) -> None:
        """Answer with the metrics; at any other path, with their path."""
        headers = ((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items())
        refusal = _CALLERS.refusal("GET", headers)
        if refusal is not None:
            self._answer(refusal.status, f"{refusal.message}\n".encode())
        elif self.path.partition("?")[0] != PATH:
            self._answer(404, f"there is only {PATH} here\n".encode())
        else:
            self._answer(200, self.render(), CONTENT_TYPE)

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
