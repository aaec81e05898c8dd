"""Which numeric fields an index has, and where each is stored."""

from __future__ import annotations

import sqlite3

from velodrome.errors import InputError
from velodrome.index.query import MEASURES, TASK_FIELDS
from velodrome.settings.spelling import hint


class Fields:
    """A look-up from the names a person uses to columns. No name ever becomes SQL, only what it is mapped to."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.extra = {
            name: f"c{place}" for name, place in connection.execute("SELECT name, place FROM field ORDER BY place")
        }

    def names(self) -> list[str]:
        """Every numeric field of a rollout."""
        return [*MEASURES, *self.extra]

    def column(self, name: str, *, what: str = "field") -> str:
        """Where a rollout's own field is stored; an unknown one is the user's mistake."""
        if name in MEASURES or name == "number":
            return name
        if name not in self.extra:
            known = [*MEASURES, *self.extra, *TASK_FIELDS, "number"]
            raise InputError(f'{what}: no field "{name:.60}"{hint(name, known)}')
        return self.extra[name]
