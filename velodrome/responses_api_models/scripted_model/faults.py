"""Faults to inject: their kinds, and the calls they hit.

The calls that are hit depend only on the call count and a seed, so a run can be repeated.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from velodrome.settings.model import Settings


class Fault(Settings):
    """One kind of fault. It hits the first `times` calls, every `every`-th call, or a share `rate` of them."""

    kind: Literal["status", "garbage", "half_body", "reset", "never"] = Field(
        description="`status` (answers with an HTTP error), `garbage` (a body that is not JSON), `half_body` (stops in"
        " the middle), `reset` (resets the connection), `never` (does not answer)"
    )
    status: int = Field(500, description="of kind `status`: the code")
    retry_after_s: float | None = Field(None, description="of kind `status`: a `Retry-After` header")
    body: str = Field(
        '{"error": {"message": "a scripted fault", "type": "scripted"}}', description="of kind `status`: the body"
    )
    times: int | None = Field(None, description="hits the first so many calls")
    every: int | None = Field(None, ge=1, description="hits every *n*th call")
    rate: float | None = Field(None, description="hits this share of calls, by `seed`")

    def hits(self, call: int, chance: random.Random) -> bool:
        """Whether the call with this number (from 0) is hit."""
        if self.times is not None:
            return call < self.times
        if self.every is not None:
            return (call + 1) % self.every == 0
        return self.rate is None or chance.random() < self.rate
