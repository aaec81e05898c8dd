"""llama.cpp through one blocking call that can be stopped.

xllamacpp's `Server` batches the calls of all threads by itself. Only a streamed call can be stopped: its callback
returns True, and llama.cpp frees the slot. So every call is streamed, except those that ask for token ids: a stream
leaves out the ids of tokens that add no text, such as the end of the turn, and of parts of characters.

Rollouts of one environment begin with the same instructions and examples. The first such prompt is processed once and
copied to every slot, through a file that llama.cpp saves and restores; then each slot processes only the new text.
"""

from __future__ import annotations

import http.client
import logging
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import orjson

from velodrome.errors import InputError, ModelError, blame
from velodrome.machine import cores

Json = dict[str, Any]

_log = logging.getLogger(__name__)
_COPY_TIMEOUT_S = 60.0
# A copy overwrites the slots' caches, so if every prompt begins differently, copying stops after this many.
_MAX_BEGINNINGS = 8
_MAX_THREADS = 8  # of a small model; more threads only wait for each other


class Engine:
    """One loaded model. `generate` may be called from as many threads as there are slots.

    `n_ctx` is the tokens of one conversation; memory is `n_ctx * parallel`.
    """

    def __init__(self, path: Path, *, n_ctx: int, parallel: int, n_threads: int, verbose: bool = False) -> None:
        import xllamacpp  # an optional dependency of 100 MB

        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = n_ctx * parallel
        params.n_parallel = parallel
        params.cpuparams.n_threads = n_threads
        params.cpuparams_batch.n_threads = n_threads
        params.verbosity = 3 if verbose else -1
        params.warmup = False
        params.fit_params = False
        params.cache_ram_mib = 0  # else up to 8 GB of old prompts
        params.endpoint_metrics = True
        # The library opens a loopback port in any case; the key keeps other programs out.
        self._key = secrets.token_hex(16)
        params.api_keys = [self._key]
        self._slots = parallel
        self._lock = threading.Lock()
        self._running = 0
        self._beginnings: set[bytes] = set()
        self._folder = Path(gettempdir(), f"velodrome-{secrets.token_hex(8)}")
        params.slot_save_path = f"{self._folder}/"
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise InputError(f"{path}: llama.cpp cannot load it: {error} (verbose: true shows its log)") from error

    def generate(self, body: Json, on_chunk: Callable[[Json], None], stopped: Callable[[], bool]) -> None:
        """Pass each chunk of the completion to `on_chunk` as it is generated, until `stopped`.

        With `return_tokens` there is one chunk, which has the ids of all tokens; it cannot be stopped.
        """
        with blame(ModelError, "llama.cpp"), self._prepared(body, stopped):
            if body.get("return_tokens"):
                request = orjson.dumps({**body, "verbose": True})
                self._server.handle_chat_completions(request, lambda text: on_chunk(_chunk(orjson.loads(text))))
            else:
                self._stream(body, on_chunk, stopped)

    @contextmanager
    def _prepared(self, body: Json, stopped: Callable[[], bool]) -> Iterator[None]:
        """Count the call as running. A new kind of prompt is first copied to all slots, if no other call is running."""
        messages = body["messages"]
        beginning = orjson.dumps([messages[:1], body.get("tools")])
        with self._lock:
            is_new = beginning not in self._beginnings and len(self._beginnings) < _MAX_BEGINNINGS
            is_worth_it = len(messages) > 1 and self._slots > 1 and not self._running
            if is_new and is_worth_it and self._copy_prompt(body, stopped):
                self._beginnings.add(beginning)
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _stream(self, body: Json, on_chunk: Callable[[Json], None], stopped: Callable[[], bool]) -> None:
        request = {
            **body,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that a call can be stopped in a long prompt too
        }

        def hand_over(chunk: str | bytes) -> bool:
            on_chunk(orjson.loads(chunk))
            return stopped()

        self._server.handle_chat_completions(orjson.dumps(request), hand_over)

    def _copy_prompt(self, body: Json, stopped: Callable[[], bool]) -> bool:
        """Process a prompt and copy its cache to every slot; False if that failed. No call may be running."""
        chunks: list[Json] = []
        limits = ("max_completion_tokens", "n_predict", "return_tokens")
        prompt = {key: value for key, value in body.items() if key not in limits}
        self._stream({**prompt, "max_tokens": 1, "id_slot": 0}, chunks.append, stopped)
        if stopped() or any("error" in chunk for chunk in chunks):
            return False
        self._folder.mkdir(mode=0o700)
        try:
            for slot in range(self._slots):
                if problem := self._slot_action(slot, "restore" if slot else "save"):
                    _log.debug("local_model: each slot reads the prompt for itself: %s", problem)
                    break
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return True

    def _slot_action(self, slot: int, action: str) -> str | None:
        """Save a slot's cache, or restore it into another slot; returns the problem, or None."""
        address = self._server.listening_address.removeprefix("http://")
        connection = http.client.HTTPConnection(address, timeout=_COPY_TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
            connection.request("POST", f"/slots/{slot}?action={action}", b'{"filename": "prompt"}', headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            return str(error)
        finally:
            connection.close()
        return None if answer.status == 200 else text

    def metrics(self) -> dict[str, float]:
        """llama.cpp's own counters: `requests_processing`, `tokens_predicted_total`, …"""
        metrics = self._server.handle_metrics()
        text = metrics if isinstance(metrics, str) else str(metrics, "utf-8")
        return {name: float(value) for name, value in re.findall(r"^llamacpp:(\w+) (\S+)$", text, re.MULTILINE)}


def idle_cores() -> int:
    """The number of threads that fit on the machine's idle cores."""
    available: float = cores()
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        available = min(available, int(limit) / int(period))
    except (OSError, ValueError):  # no such file, or no limit
        pass
    return threads(available, os.getloadavg()[0])


def threads(cores: float, load: float) -> int:
    """The number of idle cores: at least one, and no more than a small model can use."""
    return max(1, min(_MAX_THREADS, round(cores - load)))


def _chunk(completion: Json) -> Json:
    """A completion as the only chunk of a stream, with its token ids in vLLM's place."""
    tokens = completion.pop("__verbose", {}).get("tokens")
    choices = [{**choice, "delta": choice["message"], "token_ids": tokens} for choice in completion.get("choices", ())]
    return {**completion, "choices": choices}
