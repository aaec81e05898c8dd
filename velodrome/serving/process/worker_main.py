"""One worker process of one server: a child of the supervisor (`velodrome/children.py`), which sends it its `Brief`.

The output of the component goes to the log, with secrets masked. The head also receives the state of all servers, one
frame per change. A worker with wrong settings sends the problems.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import logging
import signal
import socket
import sys
import threading
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import orjson

from velodrome.children import ParentChannel, read_frame
from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.forks import keep_socket_alone
from velodrome.serving.process.options import ServingOptions
from velodrome.settings import Config, Instance, mask_text
from velodrome.settings.masking import secrets_in

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from velodrome.serving.profiling import ProcessProfile

HEAD = "head_server"  # the kind and the name of the head
GARBAGE = (50_000, 20, 20)  # requests leave no reference cycles, and collection visits everything in flight


@dataclass(frozen=True)
class Brief:
    """The first frame from the supervisor: the block of the worker, and the addresses of the servers it refers to.

    Secrets are sent only in this frame, not in arguments or the environment.
    """

    instance: Instance
    host: str
    index: int
    sockets: list[int]
    peers: list[str]
    key: str
    options: ServingOptions
    blocks: dict[str, Instance]  # the blocks it refers to; with settings only if they have a url
    urls: dict[str, str]
    token: str | None
    verbose: bool
    profiles: str | None  # the folder for profiles
    config_yaml: str  # for the head: the configuration, masked

    def encoded(self) -> bytes:
        options = self.options.model_dump(mode="json", include=set(ServingOptions.model_fields))
        return orjson.dumps(self, lambda _: options, orjson.OPT_NON_STR_KEYS)

    @classmethod
    def decoded(cls, data: bytes) -> Brief:
        fields = orjson.loads(data)
        fields["instance"] = Instance(**fields["instance"])
        fields["blocks"] = {name: Instance(**block) for name, block in fields["blocks"].items()}
        return cls(**fields | {"options": ServingOptions.model_validate(fields["options"])})


def main(channel: ParentChannel) -> None:
    """Serve until stopped. The exit code is 2 if the user's configuration cannot be served."""
    brief = Brief.decoded(channel.receive() or b"")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    blocks = [each.settings for each in (brief.instance, *brief.blocks.values())]
    secrets = secrets_in({"blocks": blocks, "server_token": brief.token})
    sys.stdout = sys.stderr = Masked(sys.stderr, secrets)
    level = logging.INFO if brief.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(levelname)s: %(message)s", stream=sys.stderr)
    import uvloop

    try:
        uvloop.run(serve(brief, secrets, channel))
    except InputError as error:
        problems = [mask_text(problem, secrets) for problem in error.problems]
        for problem in problems:
            sys.stderr.write(f"{problem}\n")
        with contextlib.suppress(OSError):  # in a process that the component forked
            channel.send(orjson.dumps(problems))
        sys.exit(2)


async def serve(brief: Brief, secrets: frozenset[str], channel: ParentChannel) -> None:
    """Make the component and its app, answer on both sockets until SIGTERM, then close the component."""
    from starlette.middleware.cors import CORSMiddleware

    from velodrome import http, scope
    from velodrome.serving.web_server import WebServer

    options = brief.options
    scope.connections = scope.PoolLimits(options.max_connections, options.max_connections_per_host)
    profile = _profile(brief)
    sockets = _sockets(brief)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(http.close_shared)
        app = await _app(brief, secrets, channel, profile, closing)
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        if options.cors_origins:
            app = CORSMiddleware(app, allow_origins=options.cors_origins, allow_methods=["*"], allow_headers=["*"])
        server = WebServer(app, drain_s=options.drain_s)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        with nullcontext() if profile is None else profile.running():
            await server.serve(sockets=sockets)


def _sockets(brief: Brief) -> list[socket.socket]:
    """The listening sockets. Processes that the component starts do not inherit them: they could block the port."""
    sockets = [socket.socket(fileno=number) for number in brief.sockets]
    for sock in sockets:
        sock.set_inheritable(False)
        keep_socket_alone(sock)
    return sockets


def _profile(brief: Brief) -> ProcessProfile | None:
    """The profile of this process, if profiling is on. The head is not profiled: no request waits for it."""
    if brief.profiles is None or brief.instance.kind == HEAD:
        return None
    from velodrome.serving.profiling import ProcessProfile
    from velodrome.timing.profiles import Profiles

    options = brief.options
    return ProcessProfile(
        Profiles(Path(brief.profiles), brief.instance.name),
        clock=options.profiling_clock,
        worker=brief.index,
        workers=len(brief.peers),
        every_s=options.profiling_save_every_s,
    )


async def _app(
    brief: Brief,
    secrets: frozenset[str],
    channel: ParentChannel,
    profile: ProcessProfile | None,
    closing: contextlib.AsyncExitStack,
) -> ASGIApp:
    from velodrome.serving.apps.routes import RequestLimits
    from velodrome.serving.apps.web_app import Status
    from velodrome.serving.callers import Callers

    own, options = brief.instance, brief.options
    status = Status(own.name, own.kind, own.implementation)
    callers = Callers([brief.host, *options.allowed_hosts], options.cors_origins)
    limits = RequestLimits(
        options.max_body_bytes, options.body_timeout_s, brief.token, secrets, callers, tracebacks=True
    )
    if own.kind == HEAD:
        from velodrome.serving.apps.head_app import head_app

        servers: list[Json] = []
        updates = asyncio.create_task(_update_servers(channel, servers))
        closing.callback(updates.cancel)
        return head_app(status, lambda: servers, brief.config_yaml, limits)
    from velodrome.serving.components import Components, Servers
    from velodrome.serving.hosting import server_app

    config = Config({}, {**brief.blocks, own.name: own})
    components = Components(config, servers=Servers(brief.urls, brief.token))
    component = components.connect(own.name)
    closing.push_async_callback(components.aclose)
    if own.name in components.sources:
        status.extra["source"] = components.sources[own.name]
    return await server_app(
        status,
        component,
        limits,
        key=bytes.fromhex(brief.key),
        peers=brief.peers,
        worker=brief.index,
        session_ttl_s=options.session_ttl_s,
        max_sessions=options.max_sessions,
        profile=profile,
    )


async def _update_servers(channel: ParentChannel, servers: list[Json]) -> None:
    """Update the list of servers with each frame of the supervisor."""
    reader, _ = await asyncio.open_unix_connection(sock=channel.socket)
    while (frame := await read_frame(reader)) is not None:
        servers[:] = orjson.loads(frame)


class Masked(io.TextIOBase):
    """A text stream that writes complete lines, with secrets masked."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO, secrets: Collection[str]) -> None:
        super().__init__()
        self._stream = stream
        self._secrets = secrets
        self._partial_line = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write complete lines; keep an incomplete one."""
        with self._lock:
            *lines, self._partial_line = (self._partial_line + text).split("\n")
            if lines:
                with contextlib.suppress(OSError):  # a full disk loses log lines, but no rollouts
                    self._stream.write(mask_text("\n".join(lines), self._secrets) + "\n")
                    self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Nothing to do: complete lines are written at once."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()
