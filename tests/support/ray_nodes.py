"""A Ray cluster of several nodes on loopback, in a process of its own: pytest itself never imports Ray.

Run as a program it starts a head without CPUs, prints its address and obeys its stdin: a JSON object with variables of
the environment is one more node (its raylet's process id is printed), the end of stdin is the end of the cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.patience import DEADLINE_S

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's switch for clusters that stay on loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
}
# A node that is gone is noticed after five seconds; one that is slow on a busy machine is not taken for one.
_QUICK = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
SUMS = '''
from pathlib import Path

import velodrome as velo


class Sums(velo.Environment):
    """Its answer is in a file beside this one."""

    @velo.tool
    def calculator(self, expression: str) -> str:
        """Calculate."""
        return Path(__file__).with_name("answer.txt").read_text()

    def verify(self, task, response):
        return {"reward": float(task["expected_answer"] in response.text)}
'''
_STARTS = 4  # of a node: Ray gives it 30 s, which a busy machine may not keep


class RayNodes:
    """The cluster: its address, the environment for a driver, its raylets by process id."""

    def __init__(self, process: subprocess.Popen[str], environ: dict[str, str]) -> None:
        self._process = process
        self.environ = environ
        self.address = self._read()
        self.raylets: list[int] = []

    def add(self, **environ: str) -> int:
        """One more node with one CPU; the process id of its raylet."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(environ) + "\n")
        self._process.stdin.flush()
        self.raylets.append(int(self._read()))
        return self.raylets[-1]

    def actors(self) -> list[int]:
        """The processes of all actors that make rollouts."""
        return [
            pid for raylet in self.raylets for pid in children(raylet) if title(pid).startswith("ray::RolloutActor")
        ]

    def lose(self, raylet: int) -> None:
        """A node is gone at once."""
        self.raylets.remove(raylet)
        with suppress(ProcessLookupError):
            os.kill(raylet, signal.SIGKILL)

    def lose_head(self) -> None:
        """The process of the head node that the others cannot do without is gone at once."""
        [pid] = [pid for pid in processes_of(self.environ["RAY_TMPDIR"]) if "gcs_server" in title(pid).split(" ")[0]]
        os.kill(pid, signal.SIGKILL)

    def _read(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline().strip()
        assert line, "the cluster did not start"
        return line


@contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    """A cluster with a head. At the end every process of it is gone."""
    with tempfile.TemporaryDirectory(prefix="nodes-", dir="/tmp") as folder:  # a short path: sockets are below it
        token = Path(folder, "token")
        token.write_text("0123456789abcdef" * 4)
        environ = {**os.environ, **LOOPBACK, "RAY_AUTH_TOKEN_PATH": str(token), "RAY_TMPDIR": folder}
        process = subprocess.Popen(
            [sys.executable, __file__],
            env={**environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield RayNodes(process, environ)
        finally:
            assert process.stdin
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE_S)
            left = processes_of(folder)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
            assert process.stdout
            process.stdout.close()


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def title(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def processes_of(folder: str) -> list[int]:
    """Processes whose command line or environment names a folder."""
    result = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            data = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
            if folder.encode() in data and int(place.name) != os.getpid():
                result.append(int(place.name))
    return result


def main() -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": _QUICK}
    cluster: Any = _tried(lambda: Cluster(initialize_head=True, head_node_args=dict(head)))
    print(cluster.address, flush=True)
    for number, line in enumerate(sys.stdin):
        folder = Path(os.environ["RAY_TMPDIR"], str(number))  # nodes of other machines do not share one, either
        folder.mkdir()
        with _environment(json.loads(line)):
            node = _tried(lambda folder=folder: cluster.add_node(num_cpus=1, temp_dir=str(folder)))
        print(node.all_processes["raylet"][0].process.pid, flush=True)
    cluster.shutdown()


def _tried(start: Callable[[], Any]) -> Any:
    for left in reversed(range(_STARTS)):
        try:
            return start()
        except Exception as error:
            print(f"a node did not start: {error}", file=sys.stderr)
            if not left:
                raise
    return None


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    os.environ.update(values)
    yield
    for name in values:
        del os.environ[name]


if __name__ == "__main__":
    main()
