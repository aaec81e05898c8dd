"""Our wire for an environment of another project: the standard library alone.

This file and those beside it run in the other project's virtual environment, so nothing here imports velodrome. A
program calls `take_stdout`, makes an `Adapter` and calls `serve`: it listens on loopback, prints one line of JSON with
its URL, and answers requests that bring the token of the variable VELODROME_ADAPTER_TOKEN. It ends when its stdin does.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import os
import secrets
import sys
import threading
import traceback
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Json = dict[str, Any]

COOKIE = "adapter_session"
TOKEN = "VELODROME_ADAPTER_TOKEN"
_MAX_BODY = 256 << 20


class AdapterFault(Exception):
    """A failure with the part that is to blame: ToolError, VerifyError or TaskError."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Adapter:
    """What a program fills in. A session is whatever `open` returns."""

    turns = False

    async def tools(self) -> list[Json]:
        """The tools on offer, as OpenAI function tools."""
        return []

    def tasks(self, limit: int) -> list[Json]:
        """The first tasks of the environment's data set."""
        return []

    async def open(self, task: Json) -> Any:
        """A session for a task."""

    async def call(self, session: Any, name: str, arguments: Any) -> str:
        """A tool's result."""
        return f'error: there is no tool "{name}"'

    async def reset(self, session: Any, task: Json) -> Json:
        """The first observation."""
        return {"observation": None, "info": {}}

    async def step(self, session: Any, action: str) -> Json:
        """The turn after what the model said."""
        raise NotImplementedError

    async def verify(self, session: Any, task: Json, response: Json) -> Json:
        """The score."""
        raise NotImplementedError

    async def close(self, session: Any) -> None:
        """Forget the session."""


class Service:
    """The sessions of one adapter, and a loop for its code."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self.sessions: dict[str, Any] = {}
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, work: Any) -> Any:
        """What a coroutine of the adapter gives."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def get(self, path: str) -> Any:
        """The answer to a GET."""
        if path == "/tools":
            return self.run(self.adapter.tools())
        if path.startswith("/tasks/"):
            return self.adapter.tasks(int(path.rpartition("/")[2]))
        return {"status": "ok", "sessions": True, "deferrable": False, "turns": self.adapter.turns}

    def post(self, path: str, body: Any, cookie: str) -> tuple[Any, str]:
        """The answer to a POST, and the cookie of a session that begins with it."""
        kind = "VerifyError" if path == "/verify" else "ToolError"
        try:
            return self._post(path, body, cookie)
        except AdapterFault:
            raise
        except Exception as error:
            traceback.print_exc()
            raise AdapterFault(kind, f"{path[1:]}: {type(error).__name__}: {error}") from error

    def _post(self, path: str, body: Any, cookie: str) -> tuple[Any, str]:
        if path == "/seed_session":
            session = self.run(self.adapter.open(body))
            name = secrets.token_hex(16)
            self.sessions[name] = session
            return {}, name
        if path == "/close_session":
            if cookie in self.sessions:
                self.run(self.adapter.close(self.sessions.pop(cookie)))
            return {}, ""
        if cookie not in self.sessions:
            raise AdapterFault("VerifyError" if path == "/verify" else "ToolError", "the session is gone")
        session = self.sessions[cookie]
        if path == "/verify":
            task = {name: value for name, value in body.items() if name != "response"}
            return self.run(self.adapter.verify(session, task, body["response"])), ""
        if path == "/reset":
            return self.run(self.adapter.reset(session, body)), ""
        if path == "/step":
            return self.run(self.adapter.step(session, body["action"])), ""
        return str(self.run(self.adapter.call(session, unquote(path[1:]), body))), ""


def take_stdout() -> int:
    """Keep stdout for the one line for who started this. What the project prints, on its import too, goes to stderr."""
    line = os.dup(1)
    os.dup2(2, 1)
    return line


def serve(adapter: Adapter, line: int) -> None:
    """Answer until stdin ends; `line` is what `take_stdout` returned."""
    service, token = Service(adapter), os.environ[TOKEN]

    class WireHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body leave together
        disable_nagle_algorithm = True

        def log_message(self, *args: Any) -> None:
            """Nothing: stderr is for failures."""

        def do_GET(self) -> None:
            self._answered(lambda: (service.get(self.path), ""))

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if 0 < size <= _MAX_BODY else None
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
            self._answered(lambda: service.post(self.path, body, cookie.value if cookie else ""))

        def _answered(self, work: Any) -> None:
            sent = self.headers.get("Authorization", "")
            if not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
                self._send(401, {"error": {"message": "the token is wrong", "type": "unauthorized"}})
                return
            try:
                result, cookie = work()
                self._send(200, result, cookie)
            except AdapterFault as error:
                self._send(502, {"error": {"message": str(error), "type": error.kind, "code": 502}})

        def _send(self, status: int, data: Any, cookie: str = "") -> None:
            plain = isinstance(data, str)
            body = data.encode("utf-8", "replace") if plain else json.dumps(clean(data), default=str).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8" if plain else "application/json")
            self.send_header("Content-Length", str(len(body)))
            if cookie:
                self.send_header("Set-Cookie", f"{COOKIE}={cookie}; HttpOnly; SameSite=Strict")
            self.end_headers()
            self.wfile.write(body)

    class LoopbackServer(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024

    server = LoopbackServer(("127.0.0.1", 0), WireHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with os.fdopen(line, "w") as told:
        told.write(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}) + "\n")
        told.flush()
        sys.stdin.read()
    os._exit(0)


def clean(value: Any) -> Any:
    """The value with numbers that JSON has: NaN and infinity become None."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): clean(each) for name, each in value.items()}
    return [clean(each) for each in value] if isinstance(value, list | tuple) else value


def text_of(content: Any) -> str:
    """The text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


def chat_messages(items: list[Json]) -> list[Json]:
    """Items of a Response as chat messages; the calls of one turn are one message."""
    messages: list[Json] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {"id": item.get("call_id", ""), "name": item.get("name", ""), "arguments": item.get("arguments", "")}
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = text_of(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
        elif kind == "message":
            messages.append({"role": item.get("role", "assistant"), "content": text_of(item.get("content"))})
    return messages
