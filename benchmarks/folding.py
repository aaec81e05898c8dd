"""Putting a streamed answer together: CPU microseconds per chunk, of a short answer and of one ten times as long.

The two are alike if the work grows with the length of an answer, and not with its square.
"""

from __future__ import annotations

import time

import orjson

from benchmarks.summary import Json, spread
from velodrome.responses_api_models.chunks import Fold, Turn

_SIZES = (8_000, 80_000)
_ROUNDS = 5


def cost(size: int) -> float:
    """Microseconds of CPU per chunk."""
    chunk = {"id": "c", "choices": [{"delta": {"content": "some words "}, "finish_reason": None}]}
    fold, turn = Fold("here"), Turn({})
    turn.begin(chunk)
    began = time.process_time()
    for _ in range(size):
        for delta in fold.add(chunk):
            for _event in turn.show(delta):
                pass
    fold.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    for _event in turn.end(fold.whole()):
        pass
    return 1e6 * (time.process_time() - began) / size


def main() -> Json:
    """Both sizes, in turn."""
    rounds = [[cost(size) for size in _SIZES] for _ in range(_ROUNDS)]
    figures = {f"chunks_{size}": spread([each[place] for each in rounds]) for place, size in enumerate(_SIZES)}
    return {**figures, "ratio": spread([long / short for short, long in rounds])}


if __name__ == "__main__":
    print(orjson.dumps(main()).decode())
