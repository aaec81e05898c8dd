"""llama.cpp behind one blocking call that can be stopped.

xllamacpp's `Server` batches the calls of all threads by itself. Only a streamed call can be given up: its callback
returns True, and llama.cpp frees the slot. So every call is streamed, except those that ask for token ids: a stream
leaves out the ids of tokens that add no text, such as the end of the turn, and of parts of characters.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, ModelError, blame

Json = dict[str, Any]


class Engine:
    """One loaded model. `generate` may be called from as many threads as there are slots.

    `n_ctx` is what one conversation may hold; memory is `n_ctx * parallel`.
    """

    def __init__(self, path: Path, *, n_ctx: int, parallel: int, n_threads: int, verbose: bool = False) -> None:
        import xllamacpp  # an extra, and 100 MB of it

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
        # The library opens a loopback port whether it is wanted or not; nobody knows this key.
        params.api_keys = [secrets.token_hex(16)]
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise InputError(f"{path}: llama.cpp cannot load it: {error} (verbose: true shows its log)") from error

    def generate(self, body: Json, take: Callable[[Json], bool]) -> None:
        """Hand each chunk of the completion to `take` as it is made, until that returns True.

        With `return_tokens` there is one chunk, which has the ids of all tokens; it cannot be given up.
        """
        if body.get("return_tokens"):
            whole = {**body, "verbose": True}
            with blame(ModelError, "llama.cpp"):
                self._server.handle_chat_completions(orjson.dumps(whole), lambda text: take(_chunk(orjson.loads(text))))
            return
        streamed = {
            **body,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that a long prompt can be given up too
        }
        with blame(ModelError, "llama.cpp"):
            self._server.handle_chat_completions(orjson.dumps(streamed), lambda chunk: take(orjson.loads(chunk)))

    def metrics(self) -> dict[str, float]:
        """llama.cpp's own counters: `requests_processing`, `tokens_predicted_total`, …"""
        metrics = self._server.handle_metrics()
        text = metrics if isinstance(metrics, str) else str(metrics, "utf-8")
        return {name: float(value) for name, value in re.findall(r"^llamacpp:(\w+) (\S+)$", text, re.MULTILINE)}


def _chunk(completion: Json) -> Json:
    """A completion as the one chunk of a stream, with the ids of its tokens where vLLM has them."""
    tokens = completion.pop("__verbose", {}).get("tokens")
    choices = [{**choice, "delta": choice["message"], "token_ids": tokens} for choice in completion.get("choices", ())]
    return {**completion, "choices": choices}
