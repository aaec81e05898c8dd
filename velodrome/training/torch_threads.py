"""How many threads torch uses: with more than the machine has cores, everything is many times slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many inside, as many as before after it.

    Numbers too small to matter, as Adam's decaying averages, become zero: processors are slow with them.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
