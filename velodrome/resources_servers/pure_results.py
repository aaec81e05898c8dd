"""Results of code that says it is pure, by the content of the call: equal content is computed once.

Names that a server makes up (ids of responses, items and calls) and times are not content. Failures are not kept. Of
equal calls at the same moment one computes and the others wait for it; if it fails, each computes for itself. What was
not used for longest goes first when there is too much.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any

import orjson

from velodrome.timing import spans

MOST_BYTES = 64 << 20
_OVERHEAD = 200  # bytes of an entry beside its result
_MADE_UP = frozenset(("id", "created_at", "completed_at"))


class PureResults:
    """Results by content, up to `most_bytes` of them. `hits` counts the calls that were not made."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.hits = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._running: dict[bytes, asyncio.Future[None]] = {}

    async def result(
        self, content: Any, compute: Callable[[], Awaitable[Any]], keeps: Callable[[Any], bool] = lambda result: True
    ) -> Any:
        """The result for this content: a copy of the one there is, else computed. `keeps` is False for a failure."""
        key = _digest(content)
        if key is None:
            return await compute()
        running = self._running.get(key)
        if running is not None and running.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([running])
        if key in self._kept:
            self.hits += 1
            spans.tally("cache_hits")
            self._kept.move_to_end(key)
            return pickle.loads(self._kept[key])
        done = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            result = await compute()
            if keeps(result):
                self._keep(key, pickle.dumps(result))
            return result
        finally:
            done.set_result(None)
            if self._running.get(key) is done:
                del self._running[key]

    def _keep(self, key: bytes, result: bytes) -> None:
        if key in self._kept:
            return
        self._kept[key] = result
        self._bytes += len(result) + _OVERHEAD
        while self._bytes > self._most_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest) + _OVERHEAD


def response_content(response: Mapping[str, Any]) -> dict[str, Any]:
    """A Response without what its server made up; calls are numbered in the order they appear."""
    numbers: dict[Any, int] = {}
    items = []
    for item in response.get("output") or ():
        if isinstance(item, dict):
            item = {name: value for name, value in item.items() if name not in _MADE_UP}
            if "call_id" in item:
                item["call_id"] = numbers.setdefault(str(item["call_id"]), len(numbers))
        items.append(item)
    return {name: value for name, value in response.items() if name not in _MADE_UP} | {"output": items}


def _digest(content: Any) -> bytes | None:
    """The content as one name; None if it is not JSON."""
    try:
        encoded = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None
    return blake2b(encoded, digest_size=16).digest()
