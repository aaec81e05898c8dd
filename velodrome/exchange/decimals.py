"""Which decimals `datasets` gives back as they were.

Its JSON reader adds the digits after the point as a product, which rounds 0.3 but not 0.30. A JSON column of a Parquet
file is only read. JSON lines are read, written with at most ten decimals and without such zeros, and read again.
"""

from __future__ import annotations

_MOST_READ = 15  # digits after the point
_MOST_WRITTEN = 10


def decimal(number: float, *, rewritten: bool = False) -> str | None:
    """The digits from which `datasets` gets this very number, or None; `rewritten` if it writes them itself, too."""
    whole, _, digits = repr(number).partition(".")
    if rewritten and (len(digits) > _MOST_WRITTEN or (whole, digits) == ("-0", "0")):
        return None
    most = len(digits) if rewritten else _MOST_READ
    while digits.isdigit() and len(digits) <= most:
        if abs(int(whole)) + int(digits) * 10.0 ** -len(digits) == abs(number):
            return f"{whole}.{digits}"
        digits += "0"
    return None
