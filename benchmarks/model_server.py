"""The model's side of the benchmark, in a process of its own: the scripted server, on uvloop.

Prints its URL; then, for every line it is sent, the CPU seconds it has used. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from types import TracebackType

from benchmarks.meter import allow_files


class ModelServer:
    """The server as a child process. `cpu_s()` asks it how much it has used."""

    def __enter__(self) -> ModelServer:
        command = [sys.executable, "-m", "benchmarks.model_server"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self._line()
        return self

    def cpu_s(self) -> float:
        """CPU seconds used since it started."""
        assert self._process.stdin is not None
        self._process.stdin.write("cpu\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise SystemExit("the model server ended")
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


async def serve() -> None:
    """Answer until standard input ends."""
    from benchmarks import workload
    from velodrome.responses_api_models.scripted_model.app import ScriptedModel
    from velodrome.serving.scripted import ScriptedServer

    ended = asyncio.Event()

    def asked() -> None:
        if sys.stdin.readline():
            print(time.process_time(), flush=True)
        else:
            ended.set()

    asyncio.get_running_loop().add_reader(sys.stdin, asked)
    async with ScriptedServer(ScriptedModel(function=f"{workload.__file__}:answer")) as server:
        print(server.url, flush=True)
        await ended.wait()


if __name__ == "__main__":
    import uvloop

    allow_files()
    uvloop.run(serve())
