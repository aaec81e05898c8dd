"""`velo run`: every server of a configuration, each in its own processes, and none left when it ends.

The supervisor answers no requests. It holds the listening sockets, writes down who runs where for the head server, and
holds the pipe whose end tells the workers that it is gone.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError, ServerError
from velodrome.serving.process.brief import HEAD, Brief
from velodrome.serving.process.child import Child, Orders
from velodrome.serving.process.listen import (
    LOOPBACK,
    TOKEN_VARIABLE,
    checked_address,
    head_address,
    listening,
    reachable,
    server_token,
)
from velodrome.serving.process.options import ServingOptions
from velodrome.serving.process.run_folder import run_folder
from velodrome.serving.profiling import claimed
from velodrome.settings import Config, Instance
from velodrome.settings import secrets as config_secrets
from velodrome.settings.masking import MIN_INSIDE
from velodrome.settings.names import AGENTS, MODELS, RESOURCES
from velodrome.timing.stop_signals import on_stop_signal

_KILL_AFTER_S = 2.0  # on top of drain_s: what a worker has to close its component


@dataclass
class Server:
    """One server: its block, its address, its workers."""

    instance: Instance
    host: str
    port: int
    shared: socket.socket
    private: list[socket.socket]
    key: str = field(default_factory=lambda: secrets.token_hex(32))
    children: list[Child] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{reachable(self.host)}:{self.port}"

    def close(self) -> None:
        """Stop listening: connections that wait are refused."""
        for sock in (self.shared, *self.private):
            sock.close()

    def report(self) -> Json:
        """For `/server_instances`."""
        pids = [child.pid for child in self.children if child.pid is not None]
        exits = [child.last_exit for child in self.children if child.last_exit is not None]
        statuses = {child.status for child in self.children}
        status = next((each for each in ("failed", "restarting", "starting") if each in statuses), "ok")
        return {
            "name": self.instance.name,
            "type": self.instance.kind,
            "implementation": self.instance.implementation,
            "url": self.url,
            "host": self.host,
            "port": self.port,
            "pid": pids[0] if len(pids) == 1 else pids,
            "status": status,
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
        self._directory = Path()
        self._alive = (-1, -1)  # a pipe: read end for the workers, write end for this process alone
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._interrupted = False
        self._lives: list[asyncio.Task[None]] = []

    async def run(self, *, while_up: Callable[[Supervisor], Any] | None = None) -> None:
        """Start everything, keep it running until SIGINT or SIGTERM, end everything. Raises if a server does not start.

        `while_up` makes a coroutine that runs while the servers do.
        """
        beside: asyncio.Task[None] | None = None
        with self._signals(), self._place(), contextlib.ExitStack() as held:
            try:
                self._listen()
                held.enter_context(await asyncio.to_thread(self._claimed))
                if await self._start():
                    if while_up is not None:
                        beside = asyncio.create_task(while_up(self))
                    await self._stop.wait()
                    self._say("stopping: what is in flight may finish; Ctrl-C again ends it at once")
            finally:
                if beside is not None:
                    beside.cancel()
                await self._end()

    def stop(self) -> None:
        """End everything; what is in flight may finish."""
        self._stop.set()

    def interrupt(self) -> None:
        """Ctrl-C. The first one stops as `stop` does, also if that was called before; the second ends it at once."""
        if self._interrupted:
            self._hurry.set()
        self._interrupted = True
        self.stop()

    def restart(self, names: Sequence[str], config: Config | None = None) -> None:
        """Restart these servers, with the blocks they have in `config`; the head too, if that is a new one."""
        if config is not None:
            self.config = config
            for name in names:
                self.servers[name].instance = config.instances[name]
        for name in names if config is None else [*names, HEAD]:
            server = self.servers[name]
            for index, child in enumerate(server.children):
                self._brief(server, index).write(child.orders.brief)
                child.restart()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the reader is gone (`| head`, a closed terminal): servers continue
            self._print(line)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup the terminal may go
            numbers.append(signal.SIGHUP)
        with on_stop_signal(self.interrupt, numbers):
            yield

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """The private directory and the pipe."""
        with run_folder() as self._directory:
            self._alive = os.pipe()
            try:
                self._make_log_dir()
                yield
            finally:
                for number in self._alive:
                    os.close(number)

    def _make_log_dir(self) -> None:
        try:
            self.options.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"log_dir {self.options.log_dir}: {error.strerror}; give another +log_dir") from error

    def _listen(self) -> None:
        """A socket for each server before any starts: all know every address, and every mistake is reported at once."""
        host, port = head_address(self.config.settings)
        head = Instance(HEAD, HEAD, "head", {"host": host, "port": port, "num_workers": 1}, "")
        problems: list[str] = []
        for instance in (*self.config.instances.values(), head):
            if "url" in instance.settings:
                continue
            try:
                self.servers[instance.name] = self._server(instance)
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(*problems)

    def _claimed(self) -> contextlib.ExitStack:
        """Start the profiles of all servers; those of the previous run are kept under a number."""
        return claimed(self._profiles, [name for name in self.servers if name != HEAD])

    def _server(self, instance: Instance) -> Server:
        settings = instance.settings
        what = f"{instance.source}: {instance.name}" if instance.source else instance.name
        workers = settings.get("num_workers") or self.options.num_workers
        if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= 256:
            raise InputError(f"{what}: num_workers is a whole number from 1 to 256, not {workers!r:.80}")
        host, port = checked_address(what, settings.get("host") or self.options.default_host, settings.get("port"), 0)
        shared = listening(what, host, port, self._token)
        private = [listening(what, LOOPBACK, 0, None) for _ in range(workers)]
        return Server(instance, host, shared.getsockname()[1], shared, private)

    async def _start(self) -> bool:
        """All of them at once. False if a stop was requested meanwhile."""
        count = len(self.servers) - 1
        self._say(
            f"starting {count} server{'s' if count > 1 else ''} and the head; logs: {self.options.log_dir}/<name>.log"
        )
        began = time.monotonic()
        environment = self._environment()
        waits = [wait for server in self.servers.values() for wait in self._launch(server, environment, began)]
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
        self._say(f"all ready in {time.monotonic() - began:.1f} s; Ctrl-C stops them")
        return True

    def _launch(self, server: Server, environment: Json, began: float) -> list[asyncio.Future[None]]:
        waits = []
        for index, sock in enumerate(server.private):
            stem = f"{_file_name(server.instance.name)}.{index}"
            brief = self._directory / f"{stem}.json"
            self._brief(server, index).write(brief)
            label = server.instance.name if len(server.private) == 1 else f"{server.instance.name} worker {index}"
            orders = Orders(
                label=label,
                brief=brief,
                inherited=(server.shared.fileno(), sock.fileno(), self._alive[0]),
                private=sock.getsockname()[:2],
                log=self.options.log_dir / f"{_file_name(server.instance.name)}.log",
                environment=environment,
                options=self.options,
            )
            child = Child(orders, self._write_state, self._say)
            server.children.append(child)
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._lives.append(asyncio.create_task(child.live(ready)))
            waits.append(ready)
        waits[0].add_done_callback(lambda done: self._announce(server, done, began))
        return waits

    def _announce(self, server: Server, done: asyncio.Future[None], began: float) -> None:
        if not done.cancelled() and done.exception() is None:
            workers = f" x{len(server.private)}" if len(server.private) > 1 else ""
            self._say(f"  {server.instance.name + workers:<36} {server.url:<28} {time.monotonic() - began:.1f} s")

    def _brief(self, server: Server, index: int) -> Brief:
        instance = server.instance
        others = [self.config.instances[name] for name in set(instance.references().values())]
        head = instance.kind == HEAD
        return Brief(
            name=instance.name,
            kind=instance.kind,
            implementation=instance.implementation,
            settings=dict(instance.settings),
            source=instance.source,
            host=server.host,
            index=index,
            sockets=[server.shared.fileno(), server.private[index].fileno()],
            alive_fd=self._alive[0],
            peers=[f"http://{LOOPBACK}:{sock.getsockname()[1]}" for sock in server.private],
            key=server.key,
            options=self.options,
            blocks={
                each.name: {"kind": each.kind, "settings": dict(each.settings) if "url" in each.settings else {}}
                for each in others
            },
            urls={each.name: self.servers[each.name].url for each in others if each.name in self.servers},
            token=self._token,
            verbose=logging.getLogger().isEnabledFor(logging.INFO),
            profiles=None if self._profiles is None else str(self._profiles),
            state=str(self._state) if head else "",
            config_yaml=self._config_yaml() if head else "",
        )

    def _config_yaml(self) -> str:
        """The configuration with every server's address in its block, as NeMo Gym's clients want it; secrets masked."""
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
        """Ours, without what the configuration holds as a secret."""
        hidden = {secret for secret in config_secrets(self.config) if len(secret) >= MIN_INSIDE}
        return {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE and value not in hidden}

    @property
    def _state(self) -> Path:
        return self._directory / "servers.json"

    def _write_state(self) -> None:
        part = self._state.with_suffix(".part")
        with contextlib.suppress(OSError):  # a full disk: the head reports the previous state
            part.write_bytes(orjson.dumps([server.report() for server in self.servers.values()]))
            os.replace(part, self._state)

    async def _end(self) -> None:
        """Agents before what they call, so that what is in flight can finish; all within the time, or killed."""
        deadline = time.monotonic() + self.options.drain_s + _KILL_AFTER_S
        for kind in (AGENTS, RESOURCES, MODELS, HEAD):
            group = [server for server in self.servers.values() if server.instance.kind == kind]
            for server in group:
                server.close()
                for child in server.children:
                    child.stop()
            await self._ended([child for server in group for child in server.children], deadline)
        for server in self.servers.values():
            for child in server.children:
                child.kill()
        await asyncio.gather(*self._lives)

    async def _ended(self, children: list[Child], deadline: float) -> None:
        everyone = [child for server in self.servers.values() for child in server.children]
        lives = {life for child, life in zip(everyone, self._lives, strict=True) if child in children}
        hurry = asyncio.create_task(self._hurry.wait())
        try:
            while any(not life.done() for life in lives) and not hurry.done():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return
                waiting = {life for life in lives if not life.done()}
                await asyncio.wait({*waiting, hurry}, return_when=asyncio.FIRST_COMPLETED, timeout=left_s)
        finally:
            hurry.cancel()


def _first_failures(waits: list[asyncio.Future[None]]) -> InputError | ServerError:
    """Everything that has failed so far, as one error: the user's mistakes if there are any, else ours."""
    failures = [wait.exception() for wait in waits if wait.done() and not wait.cancelled()]
    mistakes = [problem for failure in failures if isinstance(failure, InputError) for problem in failure.problems]
    if mistakes:
        return InputError(*dict.fromkeys(mistakes))
    return ServerError("\n".join(dict.fromkeys(str(failure) for failure in failures if failure is not None)))


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)
