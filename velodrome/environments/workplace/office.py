"""The office that a rollout works in: three tables of plain records, and how one state differs from another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from velodrome.errors import TaskError

Json = dict[str, Any]

FIELDS = {
    "mail": {"folder", "sender", "to", "date", "subject", "body"},
    "events": {"title", "start", "minutes", "owner", "attendees"},
    "contacts": {"name", "email", "phone", "company", "role"},
}
TABLES = tuple(FIELDS)
FORM = "%Y-%m-%d %H:%M"
DAY_FORM = "%Y-%m-%d"
MOST_NEW = 200  # records that one rollout may add
LONGEST = 10_000  # characters of a text that is stored
OFFICE = (Path(__file__).parent / "data" / "office.json").read_bytes()
_OPENS, _CLOSES = 9, 17  # office hours


class OfficeChange(NamedTuple):
    """One changed record. Without a record before it was added, without one after it was removed."""

    table: str
    name: str
    before: Json | None
    after: Json | None

    @property
    def fields(self) -> Json:
        """The new values: the changed fields, or all fields of an added record."""
        before = self.before or {}
        return {key: value for key, value in (self.after or {}).items() if before.get(key, ...) != value}


class Office:
    """The state of one session. `me` is the address of the person the model works for."""

    def __init__(self, data: bytes = OFFICE) -> None:
        self._data = data
        tables = orjson.loads(data)
        self.me: str = tables["me"]
        self.now = datetime.strptime(tables["now"], FORM)
        self.tables: dict[str, dict[str, Json]] = {name: tables[name] for name in TABLES}
        self._new = 0

    def changes(self) -> list[OfficeChange]:
        """The differences of the tables from their initial state."""
        first = orjson.loads(self._data)
        found = []
        for table in TABLES:
            before, after = first[table], self.tables[table]
            for name in {**before, **after}:
                if before.get(name) != after.get(name):
                    found.append(OfficeChange(table, name, before.get(name), after.get(name)))
        return found

    def record(self, table: str, name: str) -> Json:
        """A record, or a `ValueError` for the model."""
        found = self.tables[table].get(name)
        if found is None:
            raise ValueError(f"there is no record {name[:40]!r} in {table}; search for it first")
        return found

    def add(self, table: str, record: Json) -> str:
        """Add a record; returns its name."""
        if self._new >= MOST_NEW:
            raise ValueError(f"no more than {MOST_NEW} records can be added")
        for value in record.values():
            if isinstance(value, str) and len(value) > LONGEST:
                raise ValueError(f"a text may have {LONGEST} characters, not {len(value)}")
        self._new += 1
        name = f"{table[0]}-new-{self._new}"
        self.tables[table][name] = record
        return name

    def address(self, who: str) -> str:
        """The address of a person, by name or address, if there is one."""
        wanted = who.strip().casefold()
        known: dict[str, str] = {each["email"]: each["name"] for each in self.tables["contacts"].values()} | {
            self.me: "me"
        }
        exact = [email for email, name in known.items() if wanted in (email.casefold(), name.casefold())]
        near = exact or [email for email, name in known.items() if wanted and wanted in name.casefold()]
        if len(near) == 1:
            return near[0]
        if near:
            raise ValueError(f"{who[:60]!r} may be any of {', '.join(sorted(near))}; give the address")
        if "@" in wanted and not wanted.startswith("@") and not wanted.endswith("@") and " " not in wanted:
            return wanted[:200]
        raise ValueError(f"{who[:60]!r} is neither an address nor the name of a contact")

    def addresses(self, people: list[str], at_most: int = 20) -> list[str]:
        """The addresses of several people, without duplicates."""
        if not people:
            raise ValueError("give at least one person")
        if len(people) > at_most:
            raise ValueError(f"at most {at_most} people, not {len(people)}")
        return list(dict.fromkeys(self.address(who) for who in people))

    def busy(self, people: list[str], day: datetime) -> list[tuple[datetime, datetime]]:
        """The times of all events of these people on a day, in order."""
        times = []
        for event in self.tables["events"].values():
            start = moment(event["start"])
            if start.date() == day.date() and {event["owner"], *event["attendees"]} & {*people}:
                times.append((start, start + timedelta(minutes=event["minutes"])))
        return sorted(times)

    def free(self, people: list[str], day: datetime, minutes: int) -> Iterator[str]:
        """The half hours within office hours from which all these people are free for this many minutes."""
        taken, length = self.busy(people, day), timedelta(minutes=minutes)
        at, closes = day.replace(hour=_OPENS, minute=0), day.replace(hour=_CLOSES, minute=0)
        while at + length <= closes:
            if all(at + length <= start or at >= end for start, end in taken):
                yield at.strftime(FORM)
            at += timedelta(minutes=30)


def own_office(office: Any) -> bytes:
    """The office of a task. Raises a `TaskError` that names what is missing."""
    if not isinstance(office, dict) or not isinstance(office.get("me"), str):
        raise TaskError('"office" must be an object with "me", "now" and the tables mail, events and contacts')
    try:
        datetime.strptime(str(office.get("now")), FORM)
    except ValueError:
        raise TaskError(
            f'"office.now" must be a time such as 2026-03-02 08:30, not {str(office.get("now"))[:40]!r}'
        ) from None
    for table, fields in FIELDS.items():
        records = office.get(table, {})
        if not isinstance(records, dict):
            raise TaskError(f'"office.{table}" must be an object with a record by each id')
        for name, record in records.items():
            lacking = fields - set(record) if isinstance(record, dict) else fields
            if lacking:
                raise TaskError(f'"office.{table}": {name[:40]!r} lacks {", ".join(sorted(lacking))}')
    return orjson.dumps({**{table: {} for table in FIELDS}, **office})


def moment(text: str) -> datetime:
    """Parse a time in the only valid format. Raises a `ValueError` that shows the format."""
    try:
        return datetime.strptime(text.strip().replace("T", " ")[:40], FORM)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time; write it as 2026-03-02 14:30") from None


def date_of(text: str) -> datetime:
    """Parse a day. Raises a `ValueError` that shows the format."""
    try:
        return datetime.strptime(text.strip()[:40], DAY_FORM)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a day; write it as 2026-03-02") from None
