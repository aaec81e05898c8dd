"""The office of one rollout: mails, events and contacts as plain records. Every change is made here, and checked."""

from __future__ import annotations

import copy
import re
from datetime import datetime, timedelta
from typing import Any

from velodrome.errors import TaskError

Json = dict[str, Any]

KINDS = ("mails", "events", "contacts")
_MOST_NEW = 200
_LONGEST = 20_000
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+\.[^@\s,;<>]+")
_DAY_BEGINS, _DAY_ENDS = 9, 17


class Office:
    """A copy of a task's records: what tools do to it stays in it."""

    def __init__(self, office: Any) -> None:
        if not isinstance(office, dict) or not all(isinstance(office.get(kind), list) for kind in KINDS):
            raise TaskError(f'"office" must have the lists {", ".join(KINDS)} (workplace/README.md)')
        if not isinstance(office.get("me"), str) or not isinstance(office.get("now"), str):
            raise TaskError('"office" must have "me" (an address) and "now" (a time)')
        self.me, self.now = office["me"], office["now"]
        self.records: dict[str, list[Json]] = {kind: copy.deepcopy(office[kind]) for kind in KINDS}
        self._new = 0

    def find(self, kind: str, record_id: str) -> Json:
        """The record with this id; its absence is told to the model."""
        found = next((each for each in self.records[kind] if each["id"] == record_id), None)
        if found is None:
            raise ValueError(f"there is no {kind[:-1]} {record_id[:40]!r}; search first")
        return found

    def add(self, kind: str, fields: Json) -> Json:
        """A new record with an id of its own."""
        self._new += 1
        if self._new > _MOST_NEW:
            raise ValueError(f"no more than {_MOST_NEW} new records")
        record = {"id": f"{kind[0]}{1000 + self._new}", **fields}
        self.records[kind].append(record)
        return record

    def mail(self, to: list[str], subject: str, body: str) -> Json:
        """A mail that is sent."""
        sent = {"folder": "sent", "from": self.me, "to": addresses(to), "subject": text(subject), "body": text(body)}
        return self.add("mails", {**sent, "date": self.now})

    def search(self, kind: str, words: str) -> list[Json]:
        """The records that have all these words somewhere."""
        wanted = text(words).casefold().split()
        return [each for each in self.records[kind] if all(word in _all_text(each) for word in wanted)]

    def free_slot(self, people: list[str], day: str, minutes: int) -> str | None:
        """The first time of the working day when nobody of these, nor I, has an event; on quarters of an hour."""
        wanted = {self.me, *addresses(people)}
        date = moment(f"{day}T00:00")
        busy = [
            (moment(each["start"]), moment(each["end"]))
            for each in self.records["events"]
            if wanted & {self.me, *each["attendees"]}
        ]
        start, length = date + timedelta(hours=_DAY_BEGINS), timedelta(minutes=minutes)
        while start + length <= date + timedelta(hours=_DAY_ENDS):
            if all(end <= start or begin >= start + length for begin, end in busy):
                return start.strftime("%Y-%m-%dT%H:%M")
            start += timedelta(minutes=15)
        return None


def _all_text(record: Json) -> str:
    return " ".join(str(value) for value in record.values()).casefold()


def text(value: str) -> str:
    """A text of a bearable length."""
    if len(value) > _LONGEST:
        raise ValueError(f"at most {_LONGEST} characters")
    return value


def addresses(people: list[str]) -> list[str]:
    """Addresses as they are kept: each once, in small letters."""
    if not people or len(people) > 50:
        raise ValueError("give from 1 to 50 addresses")
    wrong = [each for each in people if len(each) > 200 or not _ADDRESS.fullmatch(each.strip())]
    if wrong:
        raise ValueError(f"{wrong[0][:40]!r} is not an address; look it up in the contacts")
    return list(dict.fromkeys(each.strip().lower() for each in people))


def moment(value: str) -> datetime:
    """A time like 2026-03-02T10:00."""
    try:
        return datetime.strptime(value, "%Y-%m-%dT%H:%M")
    except ValueError:
        raise ValueError(f"{value[:40]!r} is not a time like 2026-03-02T10:00") from None


def span(start: str, end: str) -> Json:
    """From one time to a later one."""
    if moment(start) >= moment(end):
        raise ValueError("the end must be after the start")
    return {"start": moment(start).strftime("%Y-%m-%dT%H:%M"), "end": moment(end).strftime("%Y-%m-%dT%H:%M")}
