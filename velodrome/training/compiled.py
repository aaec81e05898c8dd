"""numba's njit, typed: `kernel` for functions that Python calls, `inner` for those that kernels call.

numba's own cache looks only at the file that defines a kernel; after a change to a constant or an `inner` in another
file it would use old code. So cached code is in a folder named by a digest of every source beside the kernel. A kernel
uses nothing that is compiled in another folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from velodrome.errors import StorageError

F = TypeVar("F", bound=Callable[..., object])

_njit: Any = numba.njit  # takes more options than its type stubs list
_config: Any = numba.config
_OPTIONS = {"nogil": True, "error_model": "numpy"}


@cache
def _sources_digest(folder: Path) -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder(function: Callable[..., object], chosen: str) -> str:
    """Beside the source, or in the folder the user chose (NUMBA_CACHE_DIR)."""
    beside = Path(function.__code__.co_filename).parent
    within = Path(chosen) if chosen else beside / "__pycache__"
    return str(within / f"kernels-{_sources_digest(beside)}")


@contextmanager
def storage_errors() -> Iterator[None]:
    """Around the first calls of kernels: one that cannot be cached, as on a full disk, is a `StorageError`."""
    try:
        yield
    except OSError as error:
        where = error.filename or "the folder of compiled kernels"
        way = "make room, or set NUMBA_CACHE_DIR to another folder"
        raise StorageError(f"{where}: cannot be written ({error.strerror or error}); {way}") from error


def kernel(function: F, **options: object) -> F:
    """Compile on the first call, or load what an earlier process compiled. Without a writable folder, compile."""
    chosen = _config.CACHE_DIR
    _config.CACHE_DIR = _cache_folder(function, chosen)
    try:
        return cast(F, _njit(cache=True, **_OPTIONS, **options)(function))
    except RuntimeError:  # numba found no folder it may write to
        return cast(F, _njit(**_OPTIONS, **options)(function))
    finally:
        _config.CACHE_DIR = chosen


def inner(function: F) -> F:
    """Compiled into the kernels that use it, without a wrapper for Python, which is half of the compile time."""
    return cast(F, _njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))
