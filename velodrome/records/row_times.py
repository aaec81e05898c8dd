"""`meta.timing` as typed values: the only reader of a row's times. `collector/account.py` writes them.

If the total or a part is invalid, the row has no times; any other invalid value counts as missing. The tree is kept
as written: `[name, start in µs, length in µs, counts, children]`.
"""

from __future__ import annotations

from typing import Any

from velodrome.records.mending import HOSTILE, LONGEST_S

Json = dict[str, Any]
Parts = tuple[float, float, float, float, float, float, float, float]

PARTS = ("queue", "connection", "session", "model", "backoff", "tools", "verify", "other")
WAITS = ("queue", "connection", "backoff")  # spans inside others, which do not count as time of the outer span
_MOST = 1e9  # upper bound of counts
_LONGEST_REASON = 100
_NUMBER = (int, float)  # not a union: making one takes longer than the check
# Other numbers of a row: the value if missing, and the upper bound.
_NUMBERS: dict[str, tuple[float | None, float]] = {
    **dict.fromkeys(("model_calls", "retries", "rate_limited"), (0, _MOST)),
    "read_s": (0.0, LONGEST_S),
    **dict.fromkeys(("write_s", "lag_s"), (None, LONGEST_S)),
    **dict.fromkeys(("in_flight", "limit", "cpu"), (None, _MOST)),
}


class RowTimes:
    """Where the time of one attempt went, and the load around it. A missing value is None."""

    __slots__ = ("cpu", "in_flight", "lag_s", "limit", "model_calls", "pace", "parts", "rate_limited", "read_s",
                 "retries", "total_s", "tree", "workers", "write_s")  # fmt: skip
    total_s: float
    parts: Parts  # of the total, in the order of `PARTS`
    tree: list[Any]
    pace: list[Any]  # changes of the limit since the row before: [from, to, why]
    model_calls: int
    retries: int
    rate_limited: int
    read_s: float  # of tasks, since the row before
    write_s: float | None  # of the line before
    in_flight: int | None
    limit: int | None
    cpu: float | None  # cores, of late
    lag_s: float | None  # of the event loop, of late
    workers: int  # processes side by side; `cpu` and `lag_s` are those of one

    def __init__(self, timing: Json) -> None:
        """Raises one of HOSTILE if the times are invalid."""
        get = timing.get
        self.total_s, self.parts = _timed_parts(timing)
        tree = get("tree")
        self.tree = tree if type(tree) is list else []
        pace = get("pace")
        self.pace = _valid_changes(pace) if pace else []
        workers = get("workers", 1)
        self.workers = workers if type(workers) is int and 1 <= workers < _MOST else 1
        for name, (absent, most) in _NUMBERS.items():
            value = get(name, absent)
            if value is not absent and not (isinstance(value, _NUMBER) and 0 <= value < most):
                value = absent
            setattr(self, name, value)


def _valid_changes(pace: Any) -> list[Any]:
    """The valid changes of the limit in a row."""
    return [
        change
        for change in (pace if type(pace) is list else ())
        if type(change) is list and list(map(type, change)) == [int, int, str] and len(change[2]) <= _LONGEST_REASON
    ]


def read_times(timing: Json) -> RowTimes | None:
    try:
        return RowTimes(timing)
    except HOSTILE:
        return None


def waits_below(name: str, children: list[Any]) -> dict[str, int]:
    """Microseconds of each wait below a span, to be subtracted from it.

    Of parallel tools only the waits of the tool that worked longest count, so that no part is negative.
    """
    waits: dict[str, int] = {}
    longest = -1
    for child, _, length, _, grandchildren in children:
        if child[:6] == "limit:":
            result = {"queue": length}
        elif child in WAITS:
            result = {child: length}
        else:
            result = waits_below(child, grandchildren) if grandchildren else {}
        if name != "tools":
            for wait, wait_length in result.items():
                waits[wait] = waits.get(wait, 0) + wait_length
        elif length - sum(result.values()) > longest:
            waits, longest = result, length - sum(result.values())
    return waits


def _timed_parts(timing: Json) -> tuple[float, Parts]:
    get = timing.get
    total = timing["total_s"]
    queue, session, backoff = get("queue_s", 0.0), get("session_s", 0.0), get("backoff_s", 0.0)
    connection = get("connection_s", 0.0)
    model, tools, verify = get("model_s", 0.0), get("tools_s", 0.0), get("verify_s", 0.0)
    if "other_s" not in timing:  # of an older format, in which the model's part holds its waits
        model = max(model - queue - backoff, 0.0)
    other = total - (queue + connection + session + model + backoff + tools + verify)
    valid = queue >= 0 and session >= 0 and model >= 0 and backoff >= 0 and tools >= 0 and verify >= 0
    if not (valid and connection >= 0 and 0 <= total < LONGEST_S and other > -LONGEST_S):
        raise ValueError(total)
    if other < 0:  # rounded, or put together from several clocks
        total, other = total - other, 0.0
    return total, (queue, connection, session, model, backoff, tools, verify, other)
