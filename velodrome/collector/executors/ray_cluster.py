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
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import Any

from velodrome import errors
from velodrome.collector.executors.shipping import shipped_code
from velodrome.errors import InputError, ServerError, describe
from velodrome.serving.connect import source_digest
from velodrome.serving.process.probe import listens

log = logging.getLogger(__name__)

_REACH_S = 10.0  # for a cluster to answer at its address
_NODES_S = 30.0  # for nodes to say what they have; one that is late is asked again by its first actor
_STORE_BYTES = 200 << 20  # of a cluster that is started here: frames pass through it, nothing stays
_STARTS = 3  # of a cluster here: on a busy machine a node may not be up within the 30 s that Ray gives it
_WATCH_S = 2.0  # between two looks at the head node
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"  # after so long without the head Ray ends the process, by itself
_LONGEST_FOLDER = 40  # the sockets below it have names of up to 107 characters


@dataclass(frozen=True)
class RayCluster:
    """A cluster that this process is connected to."""

    actors: int
    cpus_each: float
    is_here: bool  # started by this process, on this machine
    lost: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

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
        cluster = RayCluster(number, 1.0 if number <= cpus else 0.0, address is None)
        watch = asyncio.create_task(_watch_head(ray.get_runtime_context().gcs_address, cluster.lost))
        try:
            yield cluster
        finally:
            watch.cancel()


async def _watch_head(address: str, lost: asyncio.Future[None]) -> None:
    """Wait until the head node does not answer for half the time that Ray waits for it."""
    limit_s = float(os.environ.get(_RECONNECT) or 60) / 2
    host, _, port = address.rpartition(":")
    answered = monotonic()
    while monotonic() < answered + limit_s:
        if await listens(host.strip("[]"), int(port), timeout_s=limit_s):
            answered = monotonic()
        await asyncio.sleep(min(_WATCH_S, limit_s / 4))
    lost.set_exception(
        ServerError(
            f"ray: the head node at {address} does not answer any more; what is finished is in the output; "
            "hint: start the cluster again, and give the same command"
        )
    )


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
    mode, place = os.environ.get("RAY_AUTH_MODE", ""), Path.home() / ".ray" / "auth_token"
    token = next((name for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH") if os.environ.get(name)), "")
    values = {"RAY_AUTH_MODE": mode or ("token" if token or place.exists() else "disabled")}
    if values["RAY_AUTH_MODE"] == "token" and token != "RAY_AUTH_TOKEN":
        place = Path(os.environ[token]) if token else place
        values["RAY_AUTH_TOKEN_PATH"] = token = str(place)
        _refuse_no_token(place)
    with _environment(values), shipped_code() as folder:
        _imported()
        _refuse_wrong_token(address, token)
        code = None if folder is None else {"working_dir": str(folder)}
        with _initialised(f"ray_address {address}: no connection", address=address, runtime_env=code):
            yield


def _refuse_no_token(path: Path) -> None:
    """Ray itself would end the process."""
    try:
        problem = "" if path.read_text().strip() else "it is empty"
    except (OSError, ValueError) as error:
        problem = describe(error)
    if problem:
        raise InputError(f"ray: no token in {path}: {problem}; hint: RAY_AUTH_TOKEN_PATH names the file of the token")


def _refuse_wrong_token(address: str, token: str) -> None:
    """Ray itself would try for 20 seconds, with a line of its own for each."""
    import grpc
    from ray import _raylet
    from ray._private.services import canonicalize_bootstrap_address

    core: Any = _raylet
    header = [*core.AuthenticationTokenLoader.instance().get_token_for_http_header().items()]
    try:
        with grpc.insecure_channel(canonicalize_bootstrap_address(address)) as channel:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetClusterId")(b"", timeout=_REACH_S, metadata=header)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            problem = f"refuses the token of {token}" if header else "wants a token, and there is none"
            raise InputError(
                f"ray_address {address}: the cluster {problem}; hint: RAY_AUTH_TOKEN_PATH names the file of its token"
            ) from None
    except (ConnectionError, ValueError) as error:  # no cluster on this machine; ray.init says so
        log.debug("%s", error)


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
                    raise InputError(f"ray: {what}: {_reason(error)}") from error
    finally:
        if handler is not None:  # Ray's own would end this process at once
            with suppress(ValueError):  # not in the main thread, where Ray sets none
                signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _reason(error: Exception) -> str:
    """Why there is no connection. Ray tells versions in several lines."""
    if "Version mismatch" not in str(error):
        return last_line(error)
    return f"{' '.join(str(error).split())}; hint: install the same versions on every node"


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
