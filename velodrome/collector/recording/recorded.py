"""Between a component and its model: answers are stored, or given from the store without a call.

An answer belongs to the rollout that asked for it. Its key is a digest of the request, of the model's settings that
decide answers, of the rollout's key, and of how many equal requests the rollout has had answered before. So two repeats
of a task have answers of their own, and a second run finds each of them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.collector.attempt import Attempt
from velodrome.collector.plan import Job
from velodrome.collector.recording.answers import AnswerStore
from velodrome.collector.settings import RecordingMode
from velodrome.contracts import Json, Model, Streaming, as_model, events_of
from velodrome.errors import InputError, ModelError
from velodrome.rates import counted_below, counting
from velodrome.records.conversation import answer_flaw
from velodrome.records.events import ENDS, whole
from velodrome.resources_servers.linked import LinkedModel
from velodrome.seeds import seeded

_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


@dataclass
class ModelRecording:
    """Where answers are, and what to do with them. The store is opened when it is first used, in each process."""

    folder: Path
    mode: RecordingMode
    secrets: Collection[str] = ()  # an answer with one of them in it is not stored

    @cached_property
    def store(self) -> AnswerStore:
        """The answers."""
        return AnswerStore(self.folder, recorded=self.mode == "replay")

    def __getstate__(self) -> Json:
        return {"folder": self.folder, "mode": self.mode, "secrets": self.secrets}

    def around(self, attempt: Callable[[Job], Awaitable[Attempt]]) -> Callable[[Job], Awaitable[Attempt]]:
        """The same attempt, whose model calls are recorded or replayed."""

        async def run(job: Job) -> Attempt:
            token = _open.set(RecordedRollout(self, job.key))
            try:
                return await attempt(job)
            finally:
                _open.reset(token)

        return run

    def report(self) -> str:
        """How many answers there are, and how large the file is."""
        return f"model_cache: {self.store.count():,} answers, {self.store.size() / 1e6:.1f} MB in {self.store.path}"

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()
        del self.store


def make_recording(folder: Path | None, mode: RecordingMode, secrets: Collection[str]) -> ModelRecording | None:
    """The recording that the settings ask for, with its store open; None if they ask for none."""
    if folder is None:
        if mode in ("record", "replay"):
            raise InputError(f"model_cache_mode={mode} needs a folder: give model_cache, too")
        return None
    if mode == "off":
        return None
    recording = ModelRecording(folder, mode, frozenset(secrets))
    _ = recording.store  # a folder that cannot be used is reported before anything runs
    return recording


class RecordedCall(NamedTuple):
    """One call: the digest of its request, its number among equal requests of the rollout, and its key."""

    request: bytes
    number: int
    key: bytes


class RecordedRollout:
    """The model calls of one attempt at a rollout."""

    __slots__ = ("_answered", "_key", "_recording")

    def __init__(self, recording: ModelRecording, key: str) -> None:
        self._recording = recording
        self._key = key.encode(errors="surrogatepass")
        self._answered: dict[bytes, int] = {}

    def begin(self, identity: bytes, request: Json) -> RecordedCall:
        """A call that is made now."""
        try:
            text = orjson.dumps({**request, "stream": None}, option=_CANONICAL)
        except TypeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error
        content = hashlib.blake2b(identity + text, digest_size=32).digest()
        number = self._answered.get(content, 0)
        self._answered[content] = number + 1
        key = hashlib.blake2b(content + number.to_bytes(8, "little") + self._key, digest_size=32).digest()
        return RecordedCall(content, number, key)

    def known(self, call: RecordedCall) -> Json | None:
        """The stored answer; None if the model is to be asked."""
        recording = self._recording
        line = None if recording.mode == "record" else recording.store.get(call.key)
        if line is not None:
            answer: Json = orjson.loads(line)
            return answer
        if recording.mode == "replay":
            raise ModelError(
                f"model_cache: {recording.folder} has no answer to this request of the rollout; it was not recorded, or"
                " the task, the model's settings or a tool's result differ (model_cache_mode=auto asks the model)"
            )
        return None

    def failed(self, call: RecordedCall) -> None:
        """It was not answered, so an equal request that comes next has its number."""
        if self._answered[call.request] == call.number + 1:
            self._answered[call.request] = call.number

    async def keep(self, call: RecordedCall, answer: Any) -> None:
        """Store an answer that is one. What is not JSON is left to those who write the rollout."""
        if answer_flaw(answer) is not None:
            return
        try:
            line = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        except TypeError:
            return
        if not any(secret.encode() in line for secret in self._recording.secrets):
            await self._recording.store.put(call.key, line)


_open: ContextVar[RecordedRollout | None] = ContextVar("velodrome_recorded_rollout", default=None)


class RecordedModel:
    """A model whose answers are stored and given again inside a recorded rollout. Anywhere else it is the model."""

    def __init__(self, model: Model, identity: Any) -> None:
        self.__wrapped__ = model
        self.users = 0  # runs that put it in the place of a live model
        self._identity = hashlib.blake2b(orjson.dumps(identity, option=_CANONICAL), digest_size=32).digest()

    @counted_below
    async def respond(self, request: Json) -> Json:
        """The stored answer, or the model's."""
        rollout = _open.get()
        if rollout is None:
            return await counting(self.__wrapped__.respond)(request)
        request = seeded(request)
        call = rollout.begin(self._identity, request)
        answer = rollout.known(call)
        if answer is not None:
            return answer
        with _counted(rollout, call):
            answer = await counting(self.__wrapped__.respond)(request)
        await rollout.keep(call, answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # a copy that is not filled in yet
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


class RecordedStream(RecordedModel):
    """The same for a model that streams. Answers are stored whole."""

    async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
        """The events of the stored answer, or the model's as they come."""
        request = seeded(request)
        rollout = _open.get()
        call = None if rollout is None else rollout.begin(self._identity, request)
        answer = None if rollout is None or call is None else rollout.known(call)
        if answer is not None:
            for event in whole(answer, request):
                yield event
            return
        with _counted(rollout, call):
            async with aclosing(events_of(self.__wrapped__, request)) as events:
                async for event in events:
                    if event["type"] in ENDS and rollout is not None and call is not None:
                        await rollout.keep(call, event["response"])
                    yield event


@contextmanager
def _counted(rollout: RecordedRollout | None, call: RecordedCall | None) -> Iterator[None]:
    """A call that fails is not counted among the answered ones."""
    try:
        yield
    except BaseException:
        if rollout is not None and call is not None:
            rollout.failed(call)
        raise


def recorded(model: Any, identity: Any) -> RecordedModel:
    """A model whose answers are recorded. `identity` is what decides its answers, without secrets."""
    model = as_model(model)
    return (RecordedStream if isinstance(model, Streaming) else RecordedModel)(model, identity)


@dataclass
class LiveModels:
    """The models of a live agent, replaced by recorded ones for as long as a run lasts."""

    describe: Callable[[Any], Any]  # what decides the answers of a model
    _replaced: list[tuple[Any, str, RecordedModel]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    def __reduce__(self) -> tuple[Any, ...]:
        return LiveModels, (self.describe,)  # a copy of the agent has the recorded models as its own

    def replace(self, owner: Any) -> int:
        """Replace the models among the attributes of an agent, and of what it refers to; how many there are."""
        if id(owner) in self._seen:
            return len(self._replaced)
        self._seen.add(id(owner))
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if _is_model(value):
                model = value if isinstance(value, RecordedModel) else recorded(value, self.describe(value))
                model.users += 1
                setattr(owner, name, model)
                self._replaced.append((owner, name, model))
            elif isinstance(value, LinkedModel) or _refers(value):
                self.replace(value)
        return len(self._replaced)

    def restore(self) -> None:
        """Put the models back, unless another run still records them."""
        for owner, name, model in self._replaced:
            model.users -= 1
            if not model.users:
                setattr(owner, name, model.__wrapped__)
        self._replaced.clear()


def _is_model(value: Any) -> bool:
    return (
        callable(getattr(value, "respond", None))
        and not callable(getattr(value, "run", None))
        and not isinstance(value, LinkedModel | type)
    )


def _refers(value: Any) -> bool:
    """Whether a value is an agent or an environment, which may have models of its own."""
    return not isinstance(value, type) and any(callable(getattr(value, name, None)) for name in ("run", "score"))
