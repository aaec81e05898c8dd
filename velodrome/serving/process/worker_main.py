"""One worker process of one server: a child of the supervisor (`velodrome/children.py`), which sends it its `Brief`.

What the component prints goes to the log, without secrets. The head also receives the state of all servers, one frame
per change. A worker that refuses its settings sends the reasons.
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
GARBAGE = (50_000, 20, 20)  # a request leaves no cycles, and a search for them walks everything in flight


@dataclass(frozen=True)
class Brief:
    """What the supervisor sends a worker at its start: its own block, and of the others their addresses.

    Secrets travel in it only: not in arguments or the environment.
    """

    instance: Instance
    host: str
    index: int
    sockets: list[int]
    peers: list[str]
    key: str
    options: ServingOptions
    blocks: dict[str, Instance]  # that it refers to; settings only where they are the address of a server elsewhere
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
        with contextlib.suppress(OSError):  # this is a process that the component forked
            channel.send(orjson.dumps(problems))
        sys.exit(2)


async def serve(brief: Brief, secrets: frozenset[str], channel: ParentChannel) -> None:
    """Make the component and its app, answer on both sockets until SIGTERM, and close what was made."""
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
    """What it listens on. A process that the component starts has none of them, or it could keep the port."""
    sockets = [socket.socket(fileno=number) for number in brief.sockets]
    for sock in sockets:
        sock.set_inheritable(False)
        keep_socket_alone(sock)
    return sockets


def _profile(brief: Brief) -> ProcessProfile | None:
    """What measures this process, if it is to be measured. The head is not: nothing waits for it."""
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
        following = asyncio.create_task(_follow(channel, servers))
        closing.callback(following.cancel)
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


async def _follow(channel: ParentChannel, servers: list[Json]) -> None:
    """Keep the list of servers as the supervisor last sent it."""
    reader, _ = await asyncio.open_unix_connection(sock=channel.socket)
    while (frame := await read_frame(reader)) is not None:
        servers[:] = orjson.loads(frame)


class Masked(io.TextIOBase):
    """A text stream that writes whole lines, without secrets."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO, secrets: Collection[str]) -> None:
        super().__init__()
        self._stream = stream
        self._secrets = secrets
        self._begun = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Keep what is not a whole line yet."""
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            if lines:
                with contextlib.suppress(OSError):  # a full disk behind the log costs its lines, and no rollout
                    self._stream.write(mask_text("\n".join(lines), self._secrets) + "\n")
                    self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Lines are written at once; half a line waits for its other half."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()
