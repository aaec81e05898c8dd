"""How torch uses the CPU, where its defaults cost time."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch

_MB = 2**20
_TRIM, _MMAP = -1, -3  # of glibc's malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD


@contextmanager
def cpu_settings(threads: int) -> Iterator[None]:
    """Use this many threads inside: with more than the machine has cores, everything is many times slower.

    Numbers too small to matter, as Adam's decaying averages, become zero: processors are slow with them.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    _keep_freed_memory()
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)


@cache
def _keep_freed_memory() -> None:
    """Every update frees some megabytes and needs them again: getting them from the kernel takes a twentieth of it.

    For good, where the C library is glibc.
    """
    with suppress(AttributeError):  # another one
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP, 32 * _MB)
        mallopt(_TRIM, 256 * _MB)
