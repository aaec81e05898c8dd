"""Values by name, in bounded memory: a model or a file may contain any number of names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class FirstNames(dict[str, T]):
    """At most `most` names: the first in sorted order. The order of arrival makes no difference.

    A name in the result was never refused or dropped, so its value is complete.
    """

    def __init__(self, most: int, make: Callable[[], T], order: Callable[[str], Any] = str) -> None:
        super().__init__()
        self._most = most
        self._make = make
        self._order = order
        self.left_out: str | None = None  # this name and all after it

    def of(self, name: str) -> T | None:
        """The value of a name, created if the name is new; None if the name is left out."""
        value = self.get(name)
        if value is None and (self.left_out is None or self._order(name) < self._order(self.left_out)):
            value = self[name] = self._make()
            if len(self) > self._most:
                self.left_out = max(self, key=self._order)
                del self[self.left_out]
                return self.get(name)
        return value
