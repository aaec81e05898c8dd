"""Record and replay: stores the answers of models, and returns them later without a call.

An answer belongs to one rollout. Its key is a digest of the request, of the model's settings that decide answers, of
the rollout's key, and of the number of equal requests before it in the rollout. So two repeats of a task have separate
answers, and a second run finds them again. Answers are in one SQLite file that any number of processes can share, and
an answer is stored before its rollout continues. Requests are not stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from velodrome.collector.settings import RecordingMode
from velodrome.context import current, seeded
from velodrome.contracts import Json, Model, as_model
from velodrome.errors import InputError, ModelError
from velodrome.rates import counted_below, counting
from velodrome.records.turns import answer_flaw
from velodrome.resources_servers.linked import LinkedModel

log = logging.getLogger(__name__)

ANSWERS = "answers.sqlite"
_VERSION = 1
_BUSY_S = 60.0
_TABLE = "CREATE TABLE IF NOT EXISTS answer (key BLOB PRIMARY KEY, answer BLOB NOT NULL, stored_at REAL NOT NULL)"


class AnswerStore:
    """The answers in one folder, read on the event loop and written in a thread, because a disk can be slow."""

    def __init__(self, folder: Path, *, recorded: bool) -> None:
        self.path = folder / ANSWERS
        if recorded and not self.path.is_file():
            raise InputError(
                f"{folder}: no recorded answers in it ({ANSWERS}); model_cache_mode=record or auto records them"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._reader = self._open(fixed=recorded and not os.access(folder, os.W_OK))
            self._writer = self._reader if recorded else self._open()
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{self.path}: cannot be used as a model_cache: {error}") from error
        self._thread = ThreadPoolExecutor(1, "velodrome-answers")
        self._warned = False

    def _open(self, *, fixed: bool = False) -> sqlite3.Connection:
        """Open a connection. With `fixed` the folder is read-only, so there can be no lock files."""
        uri = f"{self.path.absolute().as_uri()}?{'immutable=1' if fixed else 'mode=rwc'}"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise InputError(f"{self.path}: made by another version of velodrome ({version}); give another folder")
            if not fixed:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA user_version={_VERSION}")
        except BaseException:
            connection.close()
            raise
        return connection

    def get(self, key: bytes) -> bytes | None:
        """The stored answer with this key, or None."""
        try:
            row = self._reader.execute("SELECT answer FROM answer WHERE key = ?", (key,)).fetchone()
        except sqlite3.Error as error:
            self._warn_once(f"cannot be read: {error}")
            return None
        return None if row is None else row[0]

    async def put(self, key: bytes, answer: bytes) -> None:
        """Store or replace an answer. If the disk refuses it, the next run calls the model again."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, key, answer)
        except sqlite3.Error as error:
            self._warn_once(f"answers cannot be stored: {error}")

    def _insert(self, key: bytes, answer: bytes) -> None:
        self._writer.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", (key, answer, time.time()))

    def _warn_once(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("%s: %s", self.path, problem)

    def count(self) -> int:
        """The number of stored answers."""
        with closing(self._reader.execute("SELECT count(*) FROM answer")) as rows:
            return int(rows.fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._thread.shutdown()
        self._reader.close()
        self._writer.close()


_CANONICAL = orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


@dataclass
class ModelRecording:
    """The folder and the mode of a recording. Each process opens the store on first use."""

    folder: Path
    mode: RecordingMode
    secrets: Collection[str] = ()  # an answer that contains one is not stored

    @cached_property
    def store(self) -> AnswerStore:
        """The answers."""
        return AnswerStore(self.folder, recorded=self.mode == "replay")

    def __getstate__(self) -> Json:
        return {"folder": self.folder, "mode": self.mode, "secrets": self.secrets}

    def rollout(self, key: str) -> RecordedRollout:
        """The model calls of an attempt at the rollout with this key, to be recorded or replayed."""
        return RecordedRollout(self, key)

    def stored(self, key: bytes) -> Json | None:
        """The stored answer; None if the model must be called."""
        line = None if self.mode == "record" else self.store.get(key)
        if line is None and self.mode == "replay":
            raise ModelError(
                f"model_cache: {self.folder} has no answer to this request of the rollout; it was not recorded, or"
                " the task, the model's settings or a tool's result differ (model_cache_mode=auto asks the model)"
            )
        return None if line is None else orjson.loads(line)

    async def store_answer(self, key: bytes, answer: Any) -> None:
        """Store the answer if it is complete, JSON, and without a secret."""
        if answer_flaw(answer) is not None:
            return
        try:
            line = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        except TypeError:
            return  # `encode_row` reports it
        if not any(secret.encode() in line for secret in self.secrets):
            await self.store.put(key, line)

    def report(self) -> str:
        """A line with the number of stored answers."""
        return f"model_cache: {self.store.count():,} answers in {self.store.path}"

    def close(self) -> None:
        """Close the store."""
        self.store.close()
        del self.store


def make_recording(folder: Path | None, mode: RecordingMode, secrets: Collection[str]) -> ModelRecording | None:
    """The recording of the settings, with its store open; None without one."""
    if folder is None:
        if mode in ("record", "replay"):
            raise InputError(f"model_cache_mode={mode} needs a folder: give model_cache, too")
        return None
    if mode == "off":
        return None
    recording = ModelRecording(folder, mode, frozenset(secrets))
    _ = recording.store  # a folder that cannot be used is reported before anything runs
    return recording


@dataclass
class RecordedRollout:
    """The model calls of one attempt at a rollout."""

    recording: ModelRecording
    key: str
    answer_counts: dict[bytes, int] = field(default_factory=dict)  # by the digest of a request

    async def respond(self, identity: bytes, request: Json, call_model: Callable[[Json], Awaitable[Any]]) -> Json:
        """The stored answer, or the model's. A failed call does not count: the next equal request has its number."""
        try:
            text = orjson.dumps({**request, "stream": None}, option=_CANONICAL)
        except TypeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error
        request_digest = hashlib.blake2b(identity + text, digest_size=32).digest()
        number = self.answer_counts.get(request_digest, 0)
        self.answer_counts[request_digest] = number + 1
        whole_key = request_digest + number.to_bytes(8, "little") + self.key.encode(errors="surrogatepass")
        key = hashlib.blake2b(whole_key, digest_size=32).digest()
        answer = self.recording.stored(key)
        if answer is None:
            try:
                answer = await call_model(request)
            except BaseException:
                if self.answer_counts[request_digest] == number + 1:
                    self.answer_counts[request_digest] = number
                raise
            await self.recording.store_answer(key, answer)
        return answer


class RecordedModel:
    """A model whose answers are stored and replayed inside a recorded rollout. Elsewhere it calls the model."""

    def __init__(self, model: Model, identity: Any) -> None:
        self.__wrapped__ = model
        self._identity = hashlib.blake2b(orjson.dumps(identity, option=_CANONICAL), digest_size=32).digest()

    @counted_below
    async def respond(self, request: Json) -> Json:
        """The stored answer, or the model's."""
        context, call_model = current(), counting(self.__wrapped__.respond)
        rollout: RecordedRollout | None = None if context is None else context.recording
        if rollout is None:
            response: Json = await call_model(request)
            return response
        return await rollout.respond(self._identity, seeded(request), call_model)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "stream"):  # an incomplete copy; streams are not recorded
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


def recorded(model: Any, identity: Any) -> RecordedModel:
    """A model whose answers are recorded. `identity` is everything that decides its answers, without secrets."""
    return RecordedModel(as_model(model), identity)


def has_recorded(owner: Any, seen: set[int] | None = None) -> bool:
    """Whether an agent, or an object that it refers to, has a recorded model as an attribute."""
    seen = set() if seen is None else seen
    if id(owner) in seen:
        return False
    seen.add(id(owner))
    values = list(getattr(owner, "__dict__", {}).values())
    return any(
        isinstance(value, RecordedModel) or (_may_have_models(value) and has_recorded(value, seen)) for value in values
    )


def _may_have_models(value: Any) -> bool:
    """Whether a value is an agent or an environment, which may have models."""
    if isinstance(value, LinkedModel):
        return True
    return not isinstance(value, type) and any(callable(getattr(value, name, None)) for name in ("run", "score"))
