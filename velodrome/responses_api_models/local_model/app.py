"""A real language model in this process: llama.cpp, many conversations in one batch, nothing behind HTTP.

The model is loaded by the first call. The event loop never waits for it: each call has a thread while it generates,
and as many generate at once as there are slots. A call that is cancelled or out of time frees its slot at the next
token.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

from velodrome.contracts import Json
from velodrome.errors import InputError, ModelError
from velodrome.responses_api_models import conversion
from velodrome.responses_api_models.chunks import Fold, Turn
from velodrome.responses_api_models.local_model import constrained, engine, weights
from velodrome.settings.kinds import FOREIGN
from velodrome.settings.spelling import hint

# Plain sampling from the whole distribution, as hosted APIs have it; llama.cpp's own defaults cut the tail off.
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}

TOOL_FORMATS = ("constrained", "native")

_SETTINGS = ("model", "model_path", "n_ctx", "parallel", "n_threads", "seed", "timeout_s", "tool_format", "verbose")

_log = logging.getLogger(__name__)


class LocalModel:
    """Answers with a GGUF model: `model` (a name that can be pulled) or `model_path`."""

    SETTINGS = tuple(_SETTINGS)

    def __init__(self, config: Mapping[str, Any], links: Mapping[str, Any] | None = None) -> None:
        _refuse_unknown(config)
        if importlib.util.find_spec("xllamacpp") is None:
            raise InputError("local_model: xllamacpp is not installed (pip install 'velodrome[local]')")
        self._path: Path | None = None
        if config.get("model_path"):
            self._path = weights.checked(Path(config["model_path"]).expanduser())
            self.name = str(config.get("model") or self._path.stem)
        else:
            self.name = weights.known(str(config.get("model") or weights.DEFAULT)).name
        self._settings = engine.Settings(
            n_ctx=_whole(config, "n_ctx", engine.Settings.n_ctx),
            parallel=_whole(config, "parallel", engine.Settings.parallel),
            n_threads=_whole(config, "n_threads", engine.Settings.n_threads),
            verbose=bool(config.get("verbose", False)),
        )
        self._timeout_s = _seconds(config, "timeout_s", 600.0)
        self._constrained = _choice(config, "tool_format", TOOL_FORMATS) == "constrained"
        seed = config.get("seed")
        self._seeds = None if seed is None else count(_whole(config, "seed", 0, least=0))
        self._pool = ThreadPoolExecutor(self._settings.parallel, thread_name_prefix="local_model")
        self._loading: Future[engine.Engine] | None = None
        self._stops: set[threading.Event] = set()
        self._closed = False

    async def respond(self, request: Json) -> Json:
        """One answer of the model; waiting for a free slot counts towards `timeout_s`, loading does not."""
        chat = conversion.chat_request(request)
        choosing = self._constrained and constrained.wanted(chat)
        body = self._body(chat, choosing)
        model = await self._loaded()
        completion = await self._completion(model, body)
        completion["model"] = self.name
        if choosing:
            completion = constrained.interpret(completion)
        return conversion.response_from_chat(completion, request)

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The same answer while it is made; a constrained call is told once it is whole."""
        chat = conversion.chat_request(request)
        reading = constrained.Reading() if self._constrained and constrained.wanted(chat) else None
        body = self._body(chat, reading is not None)
        model = await self._loaded()
        fold, turn = Fold("llama.cpp"), Turn(request)
        begun = False
        async with aclosing(self._chunks(model, body)) as chunks:
            async for chunk in chunks:
                deltas = fold.add({**chunk, "model": self.name})
                for event in () if begun else turn.begin({**chunk, "model": self.name}):
                    yield event
                begun = True
                for delta in deltas:
                    if reading is not None and "content" in delta:
                        delta["content"] = reading.feed(delta["content"])
                    for event in turn.show(delta):
                        yield event
        completion = fold.whole()
        for event in turn.end(completion if reading is None else constrained.interpret(completion)):
            yield event

    def metrics(self) -> dict[str, float]:
        """llama.cpp's counters; empty before the first call."""
        if self._loading is None or not self._loading.done():
            return {}
        return self._loading.result().metrics()

    async def aclose(self) -> None:
        """Give up what is being generated and free the model's memory."""
        self._closed = True
        for stop in self._stops:
            stop.set()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        self._loading = None

    def _body(self, chat: Json, choosing: bool) -> Json:
        if choosing:
            chat = constrained.constrain(chat)
        elif self._constrained:
            chat = {**chat, "messages": constrained.plain(chat["messages"])}
            chat.pop("tools", None)
            chat.pop("tool_choice", None)
        body = {**SAMPLING, **{key: value for key, value in chat.items() if value is not None}}
        if body.get("logprobs"):
            body["top_logprobs"] = max(1, body.get("top_logprobs", 1))  # llama.cpp takes 0 for "no log-probabilities"
        if self._seeds is not None and "seed" not in body:
            body["seed"] = next(self._seeds) % 2**32
        return body

    async def _loaded(self) -> engine.Engine:
        if self._closed:
            raise ModelError("local_model: closed")
        loading = self._loading
        if loading is None:
            loading = self._loading = self._pool.submit(self._load)
        try:
            return await asyncio.shield(asyncio.wrap_future(loading))
        finally:
            if loading.done() and not loading.cancelled() and loading.exception() and self._loading is loading:
                self._loading = None  # the next call tries again

    def _load(self) -> engine.Engine:
        return engine.Engine(self._path or weights.pull(self.name, _log.warning), self._settings)

    async def _completion(self, model: engine.Engine, body: Json) -> Json:
        stop = threading.Event()
        self._stops.add(stop)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.wrap_future(self._pool.submit(model.complete, body, stop.is_set))
        except TimeoutError:
            raise self._out_of_time() from None
        finally:
            stop.set()
            self._stops.discard(stop)

    async def _chunks(self, model: engine.Engine, body: Json) -> AsyncGenerator[Json, None]:
        """What the model's thread makes, handed over to this loop; closing it stops the thread at the next token."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        made: asyncio.Queue[Json | None] = asyncio.Queue()
        stop = threading.Event()

        def hand_over(chunk: Json | None) -> bool:
            if not stop.is_set():
                loop.call_soon_threadsafe(made.put_nowait, chunk)
            return stop.is_set()

        self._stops.add(stop)
        work = self._pool.submit(model.generate, body, hand_over)
        work.add_done_callback(lambda _: hand_over(None))
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await made.get()
                if chunk is None:
                    break
                yield chunk
            work.result()
        except TimeoutError:
            raise self._out_of_time() from None
        finally:
            stop.set()
            work.cancel()
            self._stops.discard(stop)

    def _out_of_time(self) -> ModelError:
        return ModelError(f"local_model: no answer within {self._timeout_s:g} s (timeout_s)", status=408)


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    problems = [
        f'local_model: unknown key "{key}"{hint(key, _SETTINGS)}'
        for key in config
        if key not in FOREIGN.union(_SETTINGS)
    ]
    if problems:
        raise InputError(*problems)


def _whole(config: Mapping[str, Any], key: str, default: int, *, least: int = 1) -> int:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"local_model: {key}: expected a whole number of at least {least}, found {value!r}")
    return value


def _seconds(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InputError(f"local_model: {key}: expected a number of seconds above 0, found {value!r}")
    return float(value)


def _choice(config: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = config.get(key)
    if value is None:
        return choices[0]
    if value not in choices:
        raise InputError(f"local_model: {key}: expected one of {', '.join(choices)}, found {value!r}")
    return str(value)
