"""Putting a streamed answer together: CPU microseconds per chunk, of a short answer and of one ten times as long.

The two are alike if the work grows with the length of an answer, and not with its square.
"""

from __future__ import annotations

import time

import orjson

from benchmarks.summary import Json, spread
from velodrome.responses_api_models.chunks import ChatStream

_SIZES = (8_000, 80_000)
_ROUNDS = 5


def cost(size: int) -> float:
    """Microseconds of CPU per chunk."""
    chunk = {"id": "c", "choices": [{"delta": {"content": "some words "}, "finish_reason": None}]}
    stream = ChatStream({}, "here")
    began = time.process_time()
    for _ in range(size):
        for _event in stream.add(chunk):
            pass
    for _event in stream.add({"choices": [{"delta": {}, "finish_reason": "stop"}]}):
        pass
    for _event in stream.end():
        pass
    return 1e6 * (time.process_time() - began) / size


def main() -> Json:
    """Both sizes, in turn."""
    rounds = [[cost(size) for size in _SIZES] for _ in range(_ROUNDS)]
    figures = {f"chunks_{size}": spread([each[place] for each in rounds]) for place, size in enumerate(_SIZES)}
    return {**figures, "ratio": spread([long / short for short, long in rounds])}


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
