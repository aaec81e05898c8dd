"""What a misspelt name was probably meant to be. A guess is offered, never taken."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that looks most like `word`, if one does."""
    found = difflib.get_close_matches(word, sorted(set(candidates) - {word}), n=1, cutoff=cutoff)
    return found[0] if found else None


def hint(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean "x"?`, or nothing: the end of a problem line."""
    guess = nearest(word, candidates, cutoff=cutoff)
    return f'; did you mean "{guess}"?' if guess else ""
