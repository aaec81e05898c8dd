"""The model's side of the benchmark, in a process of its own: the scripted server, on uvloop.

Prints its URL; then, for every line it is sent, the CPU seconds it has used and the calls it has answered. Ends with
its standard input. With `--streams` the same script is behind a second URL too, where it can stream: our model server.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType

from benchmarks.meter import allow_files
from velodrome.settings.component import Component


class ModelServer:
    """The server as a child process. `cpu_s()` asks it how much it has used, `calls()` how many it has answered."""

    def __init__(self, *options: str) -> None:
        self._options = options

    def __enter__(self) -> ModelServer:
        command = [sys.executable, "-m", "benchmarks.model_server", *self._options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url, *streaming = self._line().split()
        self.streaming_url = streaming[0] if streaming else None
        return self

    def cpu_s(self) -> float:
        """CPU seconds used since it started."""
        return self._figures()[0]

    def calls(self) -> int:
        """Calls answered since it started."""
        return int(self._figures()[1])

    def _figures(self) -> list[float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [float(figure) for figure in self._line().split()]

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
    model = ScriptedModel(function=f"{workload.__file__}:answer")

    def asked() -> None:
        if sys.stdin.readline():
            print(time.process_time(), model.calls, flush=True)
        else:
            ended.set()

    asyncio.get_running_loop().add_reader(sys.stdin, asked)
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(ScriptedServer(model))).url]
        if "--streams" in sys.argv:
            urls.append(await serve_streams(stack, model))
        print(*urls, flush=True)
        await ended.wait()


async def serve_streams(stack: AsyncExitStack, model: Component) -> str:
    """The URL of this model behind our model server."""
    from velodrome.serving.apps.web_app import Status
    from velodrome.serving.hosting import server_app
    from velodrome.serving.web_server import running

    sock = socket.create_server(("127.0.0.1", 0), backlog=4096)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    status = Status("model", "responses_api_models", "scripted_model")
    app = partial(server_app, status, model, None, key=secrets.token_bytes(), peers=[url], worker=0)
    await stack.enter_async_context(running(app, [sock], drain_s=1))
    return f"{url}/v1"


if __name__ == "__main__":
    import uvloop

    allow_files()
    uvloop.run(serve())
