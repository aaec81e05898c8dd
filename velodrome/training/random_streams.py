"""Random numbers by name: each stream is made from the run's seed, a name and a step.

So a resumed run needs no saved generator, and drawing more from one stream does not change the others.
"""

from __future__ import annotations

from hashlib import blake2b

import torch


def stream_seed(seed: int, name: str, step: int) -> int:
    """The seed of one stream at one step."""
    key = f"{seed}/{name}/{step}".encode()
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1


def stream(seed: int, name: str, step: int, device: torch.device | None = None) -> torch.Generator:
    """The generator of one stream at one step."""
    return torch.Generator(device or torch.device("cpu")).manual_seed(stream_seed(seed, name, step))
