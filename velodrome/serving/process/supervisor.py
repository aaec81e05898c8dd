"""`velo run`: every server of a configuration, each in its own processes, which all end with this process.

The supervisor answers no requests. It holds the listening sockets, sends each worker its settings, and sends the head
the state of all servers. Workers end with the supervisor, even if it is killed (`velodrome/children.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError, ServerError
from velodrome.serving.components import early_mistakes
from velodrome.serving.process.listen import (
    LOOPBACK,
    TOKEN_VARIABLE,
    checked_address,
    head_address,
    is_wildcard,
    listening,
    reachable,
    server_token,
)
from velodrome.serving.process.options import ServingOptions
from velodrome.serving.process.server_process import ServerProcess
from velodrome.serving.process.worker_main import HEAD, Brief
from velodrome.serving.profiling import claimed
from velodrome.settings import Config, Instance
from velodrome.settings import secrets as config_secrets
from velodrome.settings.masking import MIN_INSIDE
from velodrome.settings.names import AGENTS, MODELS, RESOURCES
from velodrome.settings.values import MOST_WORKERS
from velodrome.timing.stop_signals import on_stop_signal

_KILL_AFTER_S = 2.0  # in addition to drain_s: the time for a worker to close its component


@dataclass
class Server:
    """One server: its block, its address, its workers."""

    instance: Instance
    host: str
    shared: socket.socket
    private: list[socket.socket]
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    children: list[ServerProcess] = field(default_factory=list)
    lives: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port: int = self.shared.getsockname()[1]
        self.url = f"http://{reachable(self.host)}:{self.port}"

    def stop(self) -> None:
        """Refuse new connections, and let requests in flight finish."""
        for sock in (self.shared, *self.private):
            sock.close()
        for child in self.children:
            child.stop()

    def report(self) -> Json:
        pids = [child.pid for child in self.children if child.pid is not None]
        exits = [child.last_exit for child in self.children if child.last_exit is not None]
        statuses = {child.status for child in self.children}
        return {
            "name": self.instance.name,
            "type": self.instance.kind,
            "implementation": self.instance.implementation,
            "url": self.url,
            "host": self.host,
            "port": self.port,
            "pid": pids[0] if pids else None,  # NeMo Gym's clients expect a number
            "pids": pids,
            "status": next((each for each in ("failed", "restarting", "starting") if each in statuses), "ok"),
            "start_time": round(min((child.started for child in self.children), default=time.time()), 3),
            "restarts": sum(child.restarts for child in self.children),
            "last_exit": exits[-1] if exits else None,
        }


class Supervisor:
    """All servers of one configuration, from their start to their end."""

    def __init__(self, config: Config, options: ServingOptions, say: Callable[[str], None]) -> None:
        self.config = config
        self.options = options
        self.servers: dict[str, Server] = {}
        self._print = say
        self._token = server_token(config.settings)
        self._profiles = options.profile_folder()
        self._stop = asyncio.Event()
        self._kill_now = asyncio.Event()
        self._interrupted = False

    async def run(self, *, while_up: Callable[[Supervisor], Any] | None = None) -> None:
        """Start all servers, run until SIGINT or SIGTERM, and end all servers. Raises if a server does not start.

        `while_up` makes a coroutine that runs beside the servers.
        """
        background: asyncio.Task[None] | None = None
        signals = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it, to outlive the terminal
            signals.append(signal.SIGHUP)
        with on_stop_signal(self.interrupt, signals), contextlib.ExitStack() as stack:
            try:
                self._listen()
                names = [name for name in self.servers if name != HEAD]
                stack.enter_context(await asyncio.to_thread(claimed, self._profiles, names))
                if await self._start():
                    if while_up is not None:
                        background = asyncio.create_task(while_up(self))
                    await self._stop.wait()
                    self._say("stopping after the requests in flight; Ctrl-C again stops at once")
            finally:
                if background is not None:
                    background.cancel()
                await self._end()

    def stop(self) -> None:
        """End all servers after their requests in flight."""
        self._stop.set()

    def interrupt(self) -> None:
        """Handle Ctrl-C: the first calls `stop`, the second kills all servers at once."""
        if self._interrupted:
            self._kill_now.set()
        self._interrupted = True
        self.stop()

    def restart(self, names: Sequence[str]) -> None:
        """Restart these servers."""
        for name in names:
            for child in self.servers[name].children:
                child.restart()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the reader is gone (`| head`, a closed terminal): servers continue
            self._print(line)

    def _listen(self) -> None:
        """Check the blocks and open every socket before the first start, to report all mistakes together."""
        host, port = head_address(self.config.settings)
        head = Instance(HEAD, HEAD, "head", {"host": host, "port": port, "num_workers": 1}, "")
        instances = [each for each in self.config.instances.values() if "url" not in each.settings]
        problems = early_mistakes(instances, Path.cwd())
        for instance in (*instances, head):
            try:
                self.servers[instance.name] = self._server(instance)
            except InputError as error:
                problems += error.problems
        try:
            self.options.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problems.append(f"log_dir {self.options.log_dir}: {error.strerror}; give another +log_dir")
        if problems:
            raise InputError(*problems)

    def _server(self, instance: Instance) -> Server:
        settings = instance.settings
        what = f"{instance.source}: {instance.name}" if instance.source else instance.name
        workers = settings.get("num_workers") or self.options.num_workers
        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= MOST_WORKERS:
            raise InputError(f"{what}: num_workers is a whole number from 1 to {MOST_WORKERS}, not {workers!r:.80}")
        host, port = checked_address(what, settings.get("host") or self.options.default_host, settings.get("port"), 0)
        shared = listening(what, host, port, self._token)
        return Server(instance, host, shared, [listening(what, LOOPBACK, 0, None) for _ in range(workers)])

    async def _start(self) -> bool:
        """Start all servers at the same time. Returns False if a stop was requested meanwhile."""
        count = len(self.servers) - 1
        logs = f"logs: {self.options.log_dir}/<name>.log"
        self._say(f"starting {count} server{'s' if count > 1 else ''} and the head; {logs}")
        began = time.monotonic()
        environment = self._environment()
        for server in self.servers.values():
            self._launch(server, environment, began)
        waits = [child.ready for server in self.servers.values() for child in server.children]
        stop: asyncio.Future[Any] = asyncio.ensure_future(self._stop.wait())
        up: asyncio.Future[Any] = asyncio.gather(*waits)
        try:
            await asyncio.wait({stop, up}, return_when=asyncio.FIRST_COMPLETED)
            if not up.done():
                return False
            if up.exception() is not None:
                raise _first_failures(waits)
        finally:
            stop.cancel()
            up.cancel()
            await asyncio.gather(up, return_exceptions=True)
        public = [name for name, server in self.servers.items() if is_wildcard(server.host)]
        if public:
            self._say(f"other machines can reach these servers by this machine's name or address: {', '.join(public)}")
        self._say(f"all ready in {time.monotonic() - began:.1f} s; Ctrl-C stops them")
        return True

    def _launch(self, server: Server, environment: dict[str, str], began: float) -> None:
        name, workers = server.instance.name, len(server.private)
        for index, sock in enumerate(server.private):
            child = ServerProcess(
                label=name if workers == 1 else f"{name} worker {index}",
                log=self.options.log_dir / (re.sub(r"[^\w.-]", "_", name) + ".log"),
                private=sock.getsockname()[:2],
                inherited=(server.shared.fileno(), sock.fileno()),
                environment=environment,
                options=self.options,
                brief=partial(self._brief, server, index),
                changed=self._report_to_head,
                say=self._say,
            )
            server.children.append(child)
            server.lives.append(asyncio.create_task(child.live()))

        def announce(ready: asyncio.Future[None]) -> None:
            if not ready.cancelled() and ready.exception() is None:
                shown = f"{name} x{workers}" if workers > 1 else name
                self._say(f"  {shown:<36} {server.url:<28} {time.monotonic() - began:.1f} s")

        server.children[0].ready.add_done_callback(announce)

    def _brief(self, server: Server, index: int) -> bytes:
        instance = server.instance
        others = [self.config.instances[name] for name in set(instance.references().values())]
        return Brief(
            instance=instance,
            host=server.host,
            index=index,
            sockets=[server.shared.fileno(), server.private[index].fileno()],
            peers=[f"http://{LOOPBACK}:{sock.getsockname()[1]}" for sock in server.private],
            key=server.key,
            options=self.options,
            blocks={
                each.name: each if "url" in each.settings else replace(each, settings={}, source="") for each in others
            },
            urls={each.name: self.servers[each.name].url for each in others if each.name in self.servers},
            token=self._token,
            verbose=logging.getLogger().isEnabledFor(logging.INFO),
            profiles=None if self._profiles is None else str(self._profiles),
            config_yaml=self._config_yaml() if instance.kind == HEAD else "",
        ).encoded()

    def _config_yaml(self) -> str:
        """The configuration with every server's address in its block, for NeMo Gym's clients; secrets masked."""
        import yaml

        config = self.config.masked()
        for server in self.servers.values():
            block = config.get(server.instance.name, {}).get(server.instance.kind, {})
            if server.instance.kind != HEAD:
                block[server.instance.implementation] |= {"host": server.host, "port": server.port}
        host, port = head_address(self.config.settings)
        config["head_server"] = {"host": host, "port": port}
        return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)

    def _environment(self) -> dict[str, str]:
        """The environment of this process, without secrets of the configuration."""
        hidden_values = {secret for secret in config_secrets(self.config) if len(secret) >= MIN_INSIDE}
        return {
            name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE and value not in hidden_values
        }

    def _report_to_head(self) -> None:
        for child in self.servers[HEAD].children:
            child.send(orjson.dumps([server.report() for server in self.servers.values()]))

    async def _end(self) -> None:
        """Stop agents before the servers they call, so requests in flight can finish. Kill the rest in the end."""
        deadline = time.monotonic() + self.options.drain_s + _KILL_AFTER_S
        kill_now: asyncio.Future[Any] = asyncio.ensure_future(self._kill_now.wait())
        for kind in (AGENTS, RESOURCES, MODELS, HEAD):
            group = [server for server in self.servers.values() if server.instance.kind == kind]
            for server in group:
                server.stop()
            ended: asyncio.Future[Any] = asyncio.gather(*(life for server in group for life in server.lives))
            left_s = max(deadline - time.monotonic(), 0.0)
            await asyncio.wait({ended, kill_now}, return_when=asyncio.FIRST_COMPLETED, timeout=left_s)
        kill_now.cancel()
        for server in self.servers.values():
            for child in server.children:
                child.stop(now=True)
        await asyncio.gather(*(life for server in self.servers.values() for life in server.lives))


def _first_failures(waits: list[asyncio.Future[None]]) -> InputError | ServerError:
    """All failures so far as one error: mistakes of the user if there are any, else the other failures."""
    failures = [wait.exception() for wait in waits if wait.done() and not wait.cancelled()]
    mistakes = [problem for failure in failures if isinstance(failure, InputError) for problem in failure.problems]
    if mistakes:
        return InputError(*dict.fromkeys(mistakes))
    return ServerError("\n".join(dict.fromkeys(str(failure) for failure in failures if failure is not None)))
