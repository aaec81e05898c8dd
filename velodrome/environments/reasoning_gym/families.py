"""The package reasoning-gym: entries by family, seed and index, and what its scorers say.

Importing it takes more than a second, so this is done where entries are made and scored, which is a process of its own.
Some scorers and generators print; that goes nowhere.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.util
import io
import random
import socket
import tempfile
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import orjson

from velodrome.environments.reasoning_gym.answers import reference, to_score
from velodrome.environments.reasoning_gym.cpu_limit import CpuSpent, within_cpu
from velodrome.errors import InputError, TaskError, describe

Json = dict[str, Any]

# These make all their entries at once; a task beyond the first block comes from another seed.
SIZED = frozenset(("acre", "gsm_symbolic", "list_functions", "word_ladder"))
BLOCK = 500
# Their entries depend on the order of Python's sets of texts, so on PYTHONHASHSEED; `velo data generate` sets it.
HASHED = frozenset(
    ("codeio", "isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder")
)
_TUPLES = frozenset(("arc_agi", "rearc"))  # boards in their metadata are compared with tuples
_MISSING = 'reasoning_gym needs reasoning-gym: pip install "velodrome[reasoning-gym]" (it compiles a small library)'


def need_package() -> None:
    """Refuse to start without the package."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise InputError(_MISSING)


def family_names() -> list[str]:
    """All families, but the one that only mixes others."""
    with _quiet():
        from reasoning_gym.factory import DATASETS
    return sorted(set(DATASETS) - {"composite"})


def make_entry(family: str, seed: int, index: int, config: Json) -> Json:
    """The question, answer and metadata that the package makes."""
    if family in SIZED:
        block, index = divmod(index, BLOCK)
        seed = seed if not block else spread_seed(seed, f"block {block}")
    dataset = _dataset(family, seed, orjson.dumps(config, option=orjson.OPT_SORT_KEYS))
    with _quiet(), _seeded(f"{seed}/{index}"), _apart() if family == "codeio" else contextlib.nullcontext():
        entry = dataset[index]
    return {"question": entry["question"], "answer": entry["answer"], "metadata": entry["metadata"]}


def spread_seed(seed: int, name: str) -> int:
    """A seed far from those of other names: the package adds the index to it, so neighbours would share entries."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4], "big") >> 1


def score(family: str, config: Json, answer: str, entry: Json, cpu_s: float) -> float:
    """What the scorer gives. What it raises counts as 0 if it can score a right answer, or `[]`, of this task."""
    dataset = _dataset(family, 0, orjson.dumps(config, option=orjson.OPT_SORT_KEYS))
    shown = to_score(family, answer, entry)
    if shown is None:
        return 0.0
    with _quiet():
        try:
            return within_cpu(cpu_s, lambda: float(dataset.score_answer(shown, copy.deepcopy(entry))))
        except (Exception, CpuSpent):  # noqa: BLE001 - decided below whose fault it is
            right = reference(family, entry["answer"], entry["metadata"])
            dataset.score_answer("[]" if right is None else right, copy.deepcopy(entry))
            return 0.0


def as_entry(family: str, question: str, answer: str | None, metadata: Json) -> Json:
    """The entry of a task's row."""
    return {"question": question, "answer": answer, "metadata": _tuples(metadata) if family in _TUPLES else metadata}


@lru_cache(maxsize=512)
def _dataset(family: str, seed: int, config: bytes) -> Any:
    with _quiet():
        import reasoning_gym
        from reasoning_gym.factory import DATASETS

        if family not in DATASETS or family == "composite":
            raise TaskError(f'"family": there is no {family!r:.60} in reasoning-gym')
        size = BLOCK if family in SIZED else 2**31
        settings = orjson.loads(config)
        try:
            return reasoning_gym.create_dataset(family, **{"size": size, **settings, "seed": seed})
        except (TypeError, ValueError, AssertionError, AttributeError, KeyError) as error:
            raise TaskError(f'"config" does not fit {family}: {describe(error)}') from error


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _seeded(seed: str) -> Iterator[None]:
    """Seed the generators of Python and numpy, which programs of `codeio` use."""
    import numpy

    before, numpy_before = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(random.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(before)
        numpy.random.set_state(numpy_before)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """The entries of `codeio` are programs that run: they write files and would open addresses."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network here")

    names = ("connect", "connect_ex", "sendto")
    before = [getattr(socket.socket, name) for name in names]
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        for name in names:
            setattr(socket.socket, name, refuse)
        try:
            yield
        finally:
            for name, method in zip(names, before, strict=True):
                setattr(socket.socket, name, method)
