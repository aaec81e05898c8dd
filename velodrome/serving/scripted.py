"""The scripted model behind HTTP, with faults that a normal server cannot produce.

It is a raw asyncio protocol: it can reset a connection, stop in the middle of a body or never answer, and it is cheap
enough for benchmarks. It supports only a part of HTTP/1.1: keep-alive, bodies with a length, JSON.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from http import HTTPStatus
from types import TracebackType
from typing import cast

import orjson

from velodrome.contracts import Json
from velodrome.errors import ModelError, ServerError, blame
from velodrome.responses_api_models.conversion import chat_from_response, responses_request
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.responses_api_models.scripted_model.faults import Fault
from velodrome.serving.callers import Callers

_STATUSES = frozenset(HTTPStatus)
log = logging.getLogger(__name__)
_LARGEST_BYTES = 64 * 1024 * 1024


class ScriptedServer:
    """Hosts one scripted model while it is open; `url` is for `openai_base_url`. Port 0 means any free port."""

    def __init__(self, model: ScriptedModel, host: str = "127.0.0.1", port: int = 0) -> None:
        self.model = model
        self._host, self._port = host, port
        self.connections: set[_Connection] = set()
        self.callers = Callers([host])

    async def __aenter__(self) -> ScriptedServer:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self), self._host, self._port, backlog=4096)
        except OSError as error:
            raise ServerError(f"{self._host}:{self._port}: cannot listen there: {error}; give another port") from error
        host = f"[{self._host}]" if ":" in self._host else self._host
        self.url = f"http://{host}:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def wait(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._model = server.model
        self._received = bytearray()
        self._busy: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class does not derive from it
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._busy is not None:
            self._busy.cancel()

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._start_next()

    def _start_next(self) -> None:
        """Start on the next complete request, unless one is being answered."""
        if self._busy is not None and not self._busy.done():
            return
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = _length(head)
        if length is None or length > _LARGEST_BYTES:
            self._send(_answer(413 if length else 400, b'{"error": {"message": "a body needs a Content-Length"}}'))
            self._transport.close()
            return
        if len(self._received) < end + 4 + length:
            return
        body = bytes(self._received[end + 4 : end + 4 + length])
        del self._received[: end + 4 + length]
        self._busy = asyncio.create_task(self._serve(head, body))
        self._busy.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        """Start on the next request. A fault of the script closes the connection, so that its client does not wait."""
        if not task.cancelled() and task.exception() is not None:
            log.error("the scripted model failed", exc_info=task.exception())
            self._transport.close()
        else:
            self._start_next()

    async def _serve(self, head: bytes, body: bytes) -> None:
        line, *lines = head.split(b"\r\n")
        method, _, rest = line.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        headers = (each.partition(b":")[::2] for each in lines)
        refusal = self._server.callers.refusal(
            method.decode("latin-1").upper(), ((name, value.strip()) for name, value in headers)
        )
        if refusal is not None:
            self._send(_answer(refusal.status, orjson.dumps({"error": {"message": refusal.message}})))
            return
        if path == b"/v1/models":
            data = [{"id": self._model.name, "object": "model", "created": 0, "owned_by": "velodrome"}]
            self._send(_answer(200, orjson.dumps({"object": "list", "data": data})))
            return
        if path not in (b"/v1/responses", b"/v1/chat/completions"):
            self._send(_answer(404, b'{"error": {"message": "no such route; the base URL ends in /v1"}}'))
            return
        fault = self._model.next_fault()
        call = self._model.calls
        if fault is not None and fault.kind == "never":
            await asyncio.Event().wait()
        await self._model.wait()
        status, text = self._reply(path.endswith(b"/chat/completions"), body, call)
        if fault is None:
            self._send(_answer(status, text))
        else:
            self._misbehave(fault, text)

    def _reply(self, chat: bool, body: bytes, call: int) -> tuple[int, bytes]:
        try:
            with blame(ModelError, "no answer to this request"):
                request: Json = orjson.loads(body)
                response = self._model.response(responses_request(request) if chat else request, call)
                return 200, orjson.dumps(chat_from_response(response) if chat else response)
        except ModelError as error:
            message = str(error).encode(errors="backslashreplace").decode()
            return 400, orjson.dumps({"error": {"message": message, "type": "invalid_request_error"}})

    def _misbehave(self, fault: Fault, text: bytes) -> None:
        if fault.kind == "status":
            wait = None if fault.retry_after_s is None else f"{fault.retry_after_s:g}"
            self._send(_answer(fault.status, fault.body.encode(), retry_after=wait))
        elif fault.kind == "garbage":
            self._send(_answer(200, b"<html>\xff\xfe not what you asked for"))
        elif fault.kind == "half_body":
            whole = _answer(200, text)
            self._send(whole[: len(whole) - len(text) // 2])
            self._transport.close()
        else:
            self._reset()

    def _reset(self) -> None:
        """Reset the connection: without lingering, closing sends RST."""
        self._transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self._transport.abort()

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


def _length(head: bytes) -> int | None:
    at = head.find(b"\r\ncontent-length:")
    if at < 0:
        return 0 if head.startswith(b"get ") else None
    digits = head[at + 17 :].split(b"\r\n", 1)[0].strip()
    return int(digits) if digits.isdigit() else None


def _answer(status: int, body: bytes, *, retry_after: str | None = None) -> bytes:
    wait = f"Retry-After: {retry_after}\r\n" if retry_after is not None else ""
    reason = HTTPStatus(status).phrase if status in _STATUSES else "Status"
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n{wait}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
