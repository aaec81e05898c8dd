"""A connection to a Ray cluster that runs already, or to one that is started here, for as long as a block runs.

Ray writes nothing into the user's home, and says nothing of its own. A cluster that is started here is on loopback,
with a token of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from velodrome import errors
from velodrome.collector.executors.shipping import shipped_code
from velodrome.errors import InputError, describe
from velodrome.serving.connect import source_digest

log = logging.getLogger(__name__)

_REACH_S = 10.0  # for a cluster to answer at its address
_NODES_S = 30.0  # for nodes to say what they have; one that is late is asked again by its first actor
_STORE_BYTES = 200 << 20  # of a cluster that is started here: frames pass through it, nothing stays
_STARTS = 3  # of a cluster here: on a busy machine a node may not be up within the 30 s that Ray gives it
_LONGEST_FOLDER = 40  # the sockets below it have names of up to 107 characters


@dataclass(frozen=True)
class RayCluster:
    """A cluster that this process is connected to."""

    actors: int
    cpus_each: float
    is_here: bool  # started by this process, on this machine

    @property
    def host(self) -> str:
        """The address at which actors reach this process."""
        import ray

        return "127.0.0.1" if self.is_here else str(ray.util.get_node_ip_address())


@asynccontextmanager
async def ray_cluster(address: str | None, actors: int | str, most: int | None) -> AsyncIterator[RayCluster]:
    """Connect to a cluster, or start one on loopback for as long as the block runs.

    `actors` may be auto: one per CPU, but at most `most`.
    """
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(_started_here())
        else:
            await asyncio.to_thread(_refuse_unreachable, address)
            stack.enter_context(_connected(address))
            await asyncio.to_thread(_refuse_other_versions)
        import ray

        cpus = int(ray.cluster_resources().get("CPU", 0))
        number = max(min(cpus, most or cpus), 1) if actors == "auto" else int(actors)
        yield RayCluster(number, 1.0 if number <= cpus else 0.0, address is None)


@contextmanager
def _started_here() -> Iterator[None]:
    """A cluster of this machine, on loopback, with a token and a folder of its own."""
    base = tempfile.gettempdir()
    with (
        tempfile.TemporaryDirectory(prefix="velo-ray-", dir=base if len(base) < _LONGEST_FOLDER else "/tmp") as folder,
        ExitStack() as stack,
    ):
        token = Path(folder, "token")
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        authentication = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # on a Mac this is how a cluster stays on loopback
        stack.enter_context(_environment(authentication | loopback, without=["RAY_AUTH_TOKEN", "RAY_ADDRESS"]))
        constants = _imported()
        stack.callback(setattr, constants, "ENABLE_RAY_CLUSTER", constants.ENABLE_RAY_CLUSTER)
        constants.ENABLE_RAY_CLUSTER = False
        stack.enter_context(
            _initialised(
                "a cluster cannot be started here",
                tries=_STARTS,
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                _temp_dir=folder,
            )
        )
        yield


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """The cluster at an address. Its token is where the user's environment says, else where Ray keeps it."""
    usual = Path.home() / ".ray" / "auth_token"
    named = [name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if os.environ.get(name)]
    values = {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE") or ("token" if named or usual.exists() else "disabled")}
    if not named and values["RAY_AUTH_MODE"] == "token":
        values["RAY_AUTH_TOKEN_PATH"] = str(usual)
    with _environment(values), shipped_code() as folder:
        _imported()
        code = None if folder is None else {"working_dir": str(folder)}
        with _initialised(f"ray_address {address}: no connection", address=address, runtime_env=code):
            yield


@contextmanager
def _environment(values: dict[str, str], without: list[str] | None = None) -> Iterator[None]:
    """Variables of this process while the block runs."""
    values = {**values, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
    before = {name: os.environ.pop(name, None) for name in (*values, *(without or ()))}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _imported() -> Any:
    """Ray's constants. What it read from the environment when it was imported is read again."""
    import ray
    from ray import _raylet
    from ray._private import ray_constants, worker

    if ray.is_initialized():
        raise InputError("ray: this process is connected to a cluster already; hint: call ray.shutdown() before")
    core: Any = _raylet
    core.Config.initialize("")
    core.AuthenticationTokenLoader.instance().reset_cache()
    # What a raylet has to say about its processes goes to stdout otherwise, which is the result's.
    worker.print_to_stdstream = lambda data, ignore_prefix: log.debug("%s", data.get("lines"))
    return ray_constants


@contextmanager
def _initialised(what: str, *, tries: int = 1, **options: Any) -> Iterator[None]:
    import ray

    handler = signal.getsignal(signal.SIGTERM)
    try:
        for left in reversed(range(tries)):
            try:
                ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
                break
            except Exception as error:
                ray.shutdown()
                if not left:
                    raise InputError(f"ray: {what}: {last_line(error)}") from error
    finally:
        if handler is not None:  # Ray's own would end this process at once
            with suppress(ValueError):  # not in the main thread, where Ray sets none
                signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_unreachable(address: str) -> None:
    """Ray itself would wait for minutes, and end the process."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not (host and colon and port.isdigit()):
        raise InputError(f"ray_address: expected the host:port of a cluster's head node, or auto, not {address!r:.80}")
    import grpc

    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=_REACH_S)
    except (OSError, OverflowError, grpc.FutureTimeoutError) as error:
        raise InputError(
            f"ray_address {address}: no Ray cluster answers there ({describe(error)}); "
            f"hint: see `ray status --address {address}`"
        ) from None


@cache
def versions() -> str:
    """What every node must have in common with this machine. Copies in development have one version, but other code."""
    code = source_digest(Path(errors.__file__))
    return f"Python {platform.python_version()} and velodrome {version('velodrome')} (code {code[:8]})"


def _node_versions() -> str:
    return versions()


def _refuse_other_versions() -> None:
    """Raise if a node has other versions than this machine, or cannot run a function of this package at all."""
    import ray
    from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ask = ray.remote(num_cpus=0, max_retries=0)(_node_versions)
    calls = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            calls[ask.options(scheduling_strategy=there).remote()] = node["NodeManagerAddress"]
    answered, _ = ray.wait(list(calls), num_returns=len(calls), timeout=_NODES_S) if calls else ([], [])
    for call in answered:
        try:
            answer = ray.get(call)
        except RuntimeEnvSetupError as error:
            raise InputError(f"ray: node {calls[call]}: the code cannot be sent there: {last_line(error)}") from error
        except RayTaskError as error:
            answer = f"no velodrome that works ({last_line(error)})"
        except RayError:  # the node is gone
            continue
        if answer != versions():
            raise InputError(
                f"ray: node {calls[call]} has {answer}, but {versions()} is here; "
                "hint: install the same versions on every node"
            )


def refuse_without_ray() -> None:
    """Raise if Ray is not installed."""
    try:
        import ray
    except ImportError as error:
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise InputError(
            f"executor: ray is not installed ({describe(error)}); hint: pip install 'velodrome[ray]' (Python {here})"
        ) from None
    del ray


def last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else describe(error)
