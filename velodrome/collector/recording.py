"""Record and replay: the answers of models are stored, and given again without a call.

An answer belongs to the rollout that asked for it. Its key is a digest of the request, of the model's settings that
decide answers, of the rollout's key, and of how many equal requests the rollout has had answered before. So two repeats
of a task have answers of their own, and a second run finds each of them again. Answers are in one SQLite file that any
number of processes share, and an answer is in it before its rollout continues. Requests are not stored.
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
    """The answers in one folder. Reading happens on the event loop, writing in a thread, because a disk can be slow."""

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
        self._refused = False

    def _open(self, *, fixed: bool = False) -> sqlite3.Connection:
        """A connection. With `fixed` the folder cannot be written to, so there can be no lock files."""
        name = f"{self.path.absolute().as_uri()}?{'immutable=1' if fixed else 'mode=rwc'}"
        connection = sqlite3.connect(name, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
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
            self._report(f"cannot be read: {error}")
            return None
        return None if row is None else row[0]

    async def put(self, key: bytes, answer: bytes) -> None:
        """Store an answer in the place of one that is there. A disk that refuses it costs the next run a call."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._insert, key, answer)
        except sqlite3.Error as error:
            self._report(f"answers cannot be stored: {error}")

    def _insert(self, key: bytes, answer: bytes) -> None:
        self._writer.execute("INSERT OR REPLACE INTO answer VALUES (?, ?, ?)", (key, answer, time.time()))

    def _report(self, what: str) -> None:
        if not self._refused:
            self._refused = True
            log.warning("%s: %s", self.path, what)

    def count(self) -> int:
        """How many answers there are."""
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

    async def keep(self, key: bytes, answer: Any) -> None:
        """Store the answer if it is complete, JSON, and without a secret."""
        if answer_flaw(answer) is not None:
            return
        try:
            line = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        except TypeError:
            return  # whoever writes the rollout reports it
        if not any(secret.encode() in line for secret in self.secrets):
            await self.store.put(key, line)

    def report(self) -> str:
        """How many answers there are."""
        return f"model_cache: {self.store.count():,} answers in {self.store.path}"

    def close(self) -> None:
        """Close the store."""
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


@dataclass
class RecordedRollout:
    """The model calls of one attempt at a rollout."""

    recording: ModelRecording
    key: str
    answered: dict[bytes, int] = field(default_factory=dict)  # how often, by the digest of a request

    async def respond(self, identity: bytes, request: Json, ask: Callable[[Json], Awaitable[Any]]) -> Json:
        """The stored answer, or the model's. After a failed call an equal request has the number of that call."""
        try:
            text = orjson.dumps({**request, "stream": None}, option=_CANONICAL)
        except TypeError as error:
            raise ModelError(f"request: cannot be written as JSON: {error}") from error
        asked = hashlib.blake2b(identity + text, digest_size=32).digest()
        number = self.answered.get(asked, 0)
        self.answered[asked] = number + 1
        whole_key = asked + number.to_bytes(8, "little") + self.key.encode(errors="surrogatepass")
        key = hashlib.blake2b(whole_key, digest_size=32).digest()
        answer = self.recording.stored(key)
        if answer is None:
            try:
                answer = await ask(request)
            except BaseException:
                if self.answered[asked] == number + 1:
                    self.answered[asked] = number
                raise
            await self.recording.keep(key, answer)
        return answer


class RecordedModel:
    """A model whose answers are stored and given again inside a recorded rollout. Anywhere else it is the model."""

    def __init__(self, model: Model, identity: Any) -> None:
        self.__wrapped__ = model
        self._identity = hashlib.blake2b(orjson.dumps(identity, option=_CANONICAL), digest_size=32).digest()

    @counted_below
    async def respond(self, request: Json) -> Json:
        """The stored answer, or the model's."""
        here, ask = current(), counting(self.__wrapped__.respond)
        rollout: RecordedRollout | None = None if here is None else here.recording
        if rollout is None:
            response: Json = await ask(request)
            return response
        return await rollout.respond(self._identity, seeded(request), ask)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "stream"):  # a copy that is not filled in yet; what is streamed is not recorded
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)


def recorded(model: Any, identity: Any) -> RecordedModel:
    """A model whose answers are recorded. `identity` is what decides its answers, without secrets."""
    return RecordedModel(as_model(model), identity)


def has_recorded(owner: Any, seen: set[int] | None = None) -> bool:
    """Whether a model among the attributes of an agent, or of what these refer to, is a recorded one."""
    seen = set() if seen is None else seen
    if id(owner) in seen:
        return False
    seen.add(id(owner))
    values = list(getattr(owner, "__dict__", {}).values())
    return any(isinstance(value, RecordedModel) or (_refers(value) and has_recorded(value, seen)) for value in values)


def _refers(value: Any) -> bool:
    """Whether a value is an agent or an environment, which may have models of its own."""
    if isinstance(value, LinkedModel):
        return True
    return not isinstance(value, type) and any(callable(getattr(value, name, None)) for name in ("run", "score"))
