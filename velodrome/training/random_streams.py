"""Random numbers by name: each stream is made from the run's seed, a name and a step.

Nothing has to be remembered for a run to go on with the same numbers, and whoever draws more of one stream leaves the
others alone.
"""

from __future__ import annotations

from hashlib import blake2b

import torch


def stream_seed(seed: int, name: str, step: int) -> int:
    """A number for one stream at one step."""
    told = f"{seed}/{name}/{step}".encode()
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big") >> 1


def stream(seed: int, name: str, step: int, device: torch.device | None = None) -> torch.Generator:
    """A generator of its own."""
    return torch.Generator(device or torch.device("cpu")).manual_seed(stream_seed(seed, name, step))
