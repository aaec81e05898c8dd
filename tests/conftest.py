"""No test uses a network beyond loopback; and a real HTTP server there that answers, or fails to, as a test says."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, settings

from tests.support.durations import pytest_configure  # noqa: F401 - a hook
from tests.support.patience import DEADLINE_S
from tests.support.skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401 - hooks

# Hypothesis fails a test that takes longer than 0.2 s, or draws slowly: on a busy machine that says nothing.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

# Pytest runs in several processes: threads of torch beside them would wait for each other.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A shell starts what it runs in the background with SIGINT ignored, and every process below inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# scripts/test_needs.py and `velo model pull` fetch what tests need; the libraries would look for newer versions.
_OFFLINE = (
    "HF_HUB_OFFLINE",
    "HF_DATASETS_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "PIP_NO_INDEX",
    "UV_OFFLINE",
    "DO_NOT_TRACK",
)
os.environ.update(dict.fromkeys(_OFFLINE, "1"))
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(sys.prefix) / "inductor"))  # else it stays in TMPDIR


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


Answer = bytes | str | Callable[[Seen], "bytes | str | Awaitable[bytes | str]"]


class WireServer:
    """Gives its answers in the order of the requests, the last one for ever after.

    An answer is raw bytes, one of the misbehaviours below, or a function from the request to either. `port` is one that
    the test holds with SO_REUSEPORT; by default it is a free one.
    """

    RESET = "reset"  # the connection is torn down (RST)
    NEVER = "never"  # nothing comes back
    HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this"
    GARBAGE = b"\x00\x01 this is no HTTP\r\n\r\n"

    def __init__(self, *answers: Answer, port: int = 0) -> None:
        self.answers = answers
        self.port = port
        self.seen: list[Seen] = []
        self.open = 0
        self.most_open = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def reply(status: int, body: Any = b"", **headers: str) -> bytes:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Odd"
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(data)}", *lines]
        return "\r\n".join(head).encode() + b"\r\n\r\n" + data

    async def __aenter__(self) -> WireServer:
        reused = bool(self.port) or None
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=16 * 1024 * 1024, reuse_port=reused
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("Content-Length", 0)))
        self.seen.append(Seen(method, path, headers, body))
        answer: Any = self.answers[min(len(self.seen), len(self.answers)) - 1]
        if callable(answer):
            answer = answer(self.seen[-1])
            if not isinstance(answer, bytes | str):
                answer = await answer
        if answer == self.NEVER:
            await reader.read()  # until the client gives up
            return False
        if answer == self.RESET:
            writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        writer.write(answer)
        await writer.drain()
        return answer not in (self.HALF, self.GARBAGE)


@pytest.fixture(autouse=True)
def _a_busy_machine_adds_no_lines() -> Iterator[None]:
    """A verb that takes more than two seconds says so on stderr: on a busy machine any verb does.

    Without the fixture `monkeypatch`, which would then be the first of every test and be undone last.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("velodrome.cli.streams.PATIENCE_S", DEADLINE_S)
        yield


@pytest.fixture
def wire() -> type[WireServer]:
    return WireServer
