"""A real language model in this process: llama.cpp, many conversations in one batch, no HTTP.

The first call loads the model. Each call generates in a thread, so the event loop never waits, and as many calls run at
once as there are slots. A call that is cancelled or out of time frees its slot at the next token, or, if it requested
token ids, after its last token.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar, Literal

from velodrome.context import seeded
from velodrome.contracts import Answering, Json
from velodrome.errors import InputError, ModelError
from velodrome.rates import counted
from velodrome.records.events import ENDS, all_events
from velodrome.records.turns import Turn, output_flaw
from velodrome.responses_api_models import conversion, tokens
from velodrome.responses_api_models.chunks import ChatStream, Fold
from velodrome.responses_api_models.conversion import turn_from_chat
from velodrome.responses_api_models.local_model import constrained, engine, weights
from velodrome.settings.component import Component, Field

# Plain sampling from the whole distribution, as in hosted APIs; llama.cpp's own defaults cut off the tail.
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}

_TOKENS_HINT = "llama.cpp has no ids of prompts, and no log-probabilities of characters made of several tokens"
_log = logging.getLogger(__name__)


class LocalModel(Answering, Component):
    """Answers with a GGUF model: `model` (a name that can be pulled) or `model_path`."""

    shared: ClassVar[bool] = True  # worker processes call the model loaded in their parent

    model: str | None = Field(
        None,
        description=f"a model that `velo model list` shows (`{weights.DEFAULT}`); the first call fetches it if it is"
        " not there",
    )
    model_path: str | Path | None = Field(None, description="any GGUF file instead")
    n_ctx: int = Field(
        1024, ge=1, description="tokens that one conversation may hold; a longer one is a failure that says so"
    )
    parallel: int = Field(16, ge=1, description="conversations generated at once, in one batch; further calls wait")
    n_threads: int | None = Field(
        None,
        ge=1,
        description="threads to compute with; without it, as many as there are idle cores when the model is loaded, up"
        " to 8 (more than there are idle cores makes it slower)",
    )
    seed: int | None = Field(
        None, ge=0, description="call number *n* samples with `seed + n`, unless the request has its own"
    )
    timeout_s: float = Field(600.0, gt=0, description="one call, waiting for a slot included")
    tool_format: Literal["constrained", "native"] = Field(
        "constrained",
        description="`constrained` holds the output to the tools' JSON schema; `native` leaves tools to the model's"
        " chat template",
    )
    verbose: bool = Field(False, description="llama.cpp's log on stderr")

    def setup(self) -> None:
        """Check the model's name or path; the first call loads the weights."""
        if importlib.util.find_spec("xllamacpp") is None:
            raise InputError("local_model: xllamacpp is not installed (pip install 'velodrome[local]')")
        self._path: Path | None = None
        if self.model_path:
            self._path = weights.check_gguf(Path(self.model_path).expanduser())
            self.name = self.model or self._path.stem
        else:
            self.name = weights.named_weights(self.model or weights.DEFAULT).name
        self._constrained = self.tool_format == "constrained"
        self._seeds = None if self.seed is None else count(self.seed)
        self._pool = ThreadPoolExecutor(self.parallel, thread_name_prefix="local_model")
        self._loading: Future[engine.Engine] | None = None
        self._stops: set[threading.Event] = set()
        self._closed = False
        self._missing = tokens.MissingTokens()

    @counted
    async def answer(self, request: Json) -> Turn:
        """One answer of the model; waiting for a free slot counts towards `timeout_s`, loading does not."""
        request = seeded(request)
        pieces = Fold("llama.cpp")
        async with self._completion_chunks(request) as chunks:
            async for chunk in chunks:
                pieces.add(chunk)
        completion = pieces.completed()
        turn = turn_from_chat(
            constrained.interpret(completion) if self._is_constrained(request) else completion, request
        )
        problem = output_flaw(turn.raw, is_cut=turn.is_cut)
        if problem is not None:
            raise ModelError(problem)
        self._mark_missing(turn.raw, request)
        return turn

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """Stream the answer. A constrained answer is only sent once it is complete."""
        request = seeded(request)
        if self._is_constrained(request):
            for event in all_events((await self.answer(request)).response(request)):
                yield event
            return
        stream = ChatStream(request, "llama.cpp")
        async with self._completion_chunks(request) as chunks:
            async for chunk in chunks:
                for event in stream.add(chunk):
                    yield event
        for event in stream.end():
            if event["type"] in ENDS:
                self._mark_missing(event["response"]["output"], request)
            yield event

    def _is_constrained(self, request: Json) -> bool:
        """Whether the output is constrained to the schema of a tool call or an answer."""
        return self._constrained and constrained.may_call_tool(request)

    def _mark_missing(self, output: list[Json], request: Json) -> None:
        """Mark the token fields that were requested but are missing."""
        self._missing.log_once(tokens.mark_missing(output, tokens.requested(request, {})), "local_model", _TOKENS_HINT)

    @asynccontextmanager
    async def _completion_chunks(self, request: Json) -> AsyncGenerator[AsyncGenerator[Json, None], None]:
        """The chunks of a completion. An error about the context size names the setting to change."""
        body = self._body(conversion.chat_request(request), self._is_constrained(request))
        try:
            async with aclosing(self._chunks(await self._engine(), body)) as chunks:
                yield chunks
        except ModelError as error:
            if "context size" not in str(error):
                raise
            way = f"n_ctx is {self.n_ctx}: raise it in the model's block, or shorten the conversation"
            raise ModelError(f"{error}; {way}", status=error.status, partial=error.partial) from error

    def metrics(self) -> dict[str, float]:
        """llama.cpp's counters; empty before the first call."""
        if self._loading is None or not self._loading.done():
            return {}
        return self._loading.result().metrics()

    async def aclose(self) -> None:
        """Cancel the running calls and free the model's memory."""
        self._closed = True
        for stop in self._stops:
            stop.set()
        await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)
        self._loading = None

    def _body(self, chat: Json, is_constrained: bool) -> Json:
        if is_constrained:
            chat = constrained.constrain(chat)
        elif self._constrained:
            chat = {**chat, "messages": constrained.plain(chat["messages"])}
            chat.pop("tools", None)
            chat.pop("tool_choice", None)
        body = {**SAMPLING, **{key: value for key, value in chat.items() if value is not None}}
        if tokens.IDS in tokens.requested(body, {}):
            body["return_tokens"] = True
        for name in tokens.ID_FIELDS:
            body.pop(name, None)
        if body.get("logprobs"):
            body["top_logprobs"] = max(1, body.get("top_logprobs", 1))  # 0 means "no log-probabilities" in llama.cpp
        if self._seeds is not None and "seed" not in body:
            body["seed"] = next(self._seeds) % 2**32
        return body

    async def _engine(self) -> engine.Engine:
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
        path = self._path or weights.pull(self.name, _log.warning)
        n_threads = self.n_threads or engine.idle_cores()
        return engine.Engine(path, n_ctx=self.n_ctx, parallel=self.parallel, n_threads=n_threads, verbose=self.verbose)

    async def _chunks(self, model: engine.Engine, body: Json) -> AsyncGenerator[Json, None]:
        """The chunks that the model's thread generates. Closing the iterator stops the thread at the next token."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        chunks: asyncio.Queue[Json | None] = asyncio.Queue()
        stop = threading.Event()

        def put(chunk: Json | None) -> None:
            if not stop.is_set():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        self._stops.add(stop)
        work = self._pool.submit(model.generate, body, put, stop.is_set)
        work.add_done_callback(lambda _: put(None))
        try:
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await chunks.get()
                if chunk is None:
                    break
                yield {**chunk, "model": self.name}
            work.result()
        except TimeoutError:
            message = f"local_model: no answer within {self.timeout_s:g} s (timeout_s)"
            raise ModelError(message, status=408) from None
        finally:
            stop.set()
            work.cancel()
            self._stops.discard(stop)
