"""An office for a model: mail, a calendar and contacts. The score depends on its state, not on the model's claims.

All of it is plain objects in memory, a copy per rollout, so its code is `async def`: no thread is needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from velodrome.environments.workplace.answers import office_cheats, reference_moves, wrong_moves
from velodrome.environments.workplace.checks import is_said, pair_up, wanted_changes
from velodrome.environments.workplace.office import FORM, Office, date_of, moment, own_office
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool

Json = dict[str, Any]
Folder = Literal["inbox", "sent", "archive", "trash"]

MOST_FOUND = 20


class Workplace(Environment):
    """The reward is 1.0 if the office changed as the task says and not otherwise, and the answer says what it must."""

    async def seed_session(self, task: Json) -> Office:
        """A fresh copy of the office: the task's own, or the one of the examples."""
        wanted_changes(task)
        return Office() if task.get("office") is None else Office(own_office(task["office"]))

    @tool
    async def search_mail(self, text: str, session: Office, folder: Folder | None = None) -> list[Json]:
        """Find mail by words in its sender, recipients, subject or text, newest first.

        text: words that must all occur; empty for all mail
        folder: only in this folder
        """
        words = text.casefold().split()
        found = [
            {"id": name, **{key: mail[key] for key in ("folder", "sender", "to", "date", "subject")}}
            for name, mail in session.tables["mail"].items()
            if folder in (None, mail["folder"]) and _has(words, mail)
        ]
        return sorted(found, key=lambda each: each["date"], reverse=True)[:MOST_FOUND]

    @tool
    async def read_mail(self, mail_id: str, session: Office) -> Json:
        """One mail, whole."""
        return {"id": mail_id, **session.record("mail", mail_id)}

    @tool
    async def send_mail(self, to: list[str], subject: str, body: str, session: Office) -> Json:
        """Send a new mail.

        to: addresses, or names of contacts
        """
        return self._send(session, session.addresses(to), subject, body)

    @tool
    async def reply_to_mail(self, mail_id: str, body: str, session: Office) -> Json:
        """Answer the sender of a mail."""
        mail = session.record("mail", mail_id)
        return self._send(session, [mail["sender"]], f"Re: {mail['subject']}", body, answers=mail_id)

    @tool
    async def forward_mail(self, mail_id: str, to: list[str], session: Office, note: str = "") -> Json:
        """Send a mail on to others, with a note above it."""
        mail = session.record("mail", mail_id)
        body = f"{note}\n\n----\n{mail['body']}"
        return self._send(session, session.addresses(to), f"Fwd: {mail['subject']}", body, forwards=mail_id)

    @tool
    async def move_mail(self, mail_id: str, folder: Folder, session: Office) -> str:
        """Move a mail to a folder; `trash` deletes it."""
        session.record("mail", mail_id)["folder"] = folder
        return f"{mail_id} is in {folder}"

    @tool
    async def list_events(self, day: str, session: Office) -> list[Json]:
        """The events of one day.

        day: such as 2026-03-02
        """
        date = date_of(day).strftime("%Y-%m-%d")
        events = [{"id": name, **event} for name, event in session.tables["events"].items()]
        return sorted((each for each in events if each["start"].startswith(date)), key=lambda each: each["start"])

    @tool
    async def search_events(self, text: str, session: Office) -> list[Json]:
        """Find events by words in their title, owner or attendees, soonest first."""
        words = text.casefold().split()
        events = [{"id": name, **event} for name, event in session.tables["events"].items() if _has(words, event)]
        return sorted(events, key=lambda each: each["start"])[:MOST_FOUND]

    @tool
    async def create_event(
        self, title: str, start: str, minutes: int, session: Office, attendees: list[str] | None = None
    ) -> Json:
        """Put an event into the calendar and invite people.

        start: such as 2026-03-02 14:30
        attendees: addresses, or names of contacts
        """
        people = session.addresses(attendees) if attendees else []
        begins = _at(start, minutes)
        record = {"title": title, "start": begins, "minutes": minutes, "owner": session.me, "attendees": people}
        return {"id": session.add("events", record), **record}

    @tool
    async def move_event(self, event_id: str, start: str, session: Office, minutes: int | None = None) -> Json:
        """Give one of your own events another time.

        start: such as 2026-03-02 14:30
        minutes: its new length, if that changes
        """
        event = _own(session, event_id)
        length = event["minutes"] if minutes is None else minutes
        event["start"], event["minutes"] = _at(start, length), length
        return {"id": event_id, **event}

    @tool
    async def cancel_event(self, event_id: str, session: Office) -> str:
        """Remove one of your own events from the calendar."""
        _own(session, event_id)
        del session.tables["events"][event_id]
        return f"{event_id} is cancelled"

    @tool
    async def find_free_times(self, people: list[str], day: str, minutes: int, session: Office) -> list[str]:
        """When all of these people are free for so many minutes, in office hours (9:00 to 17:00).

        people: addresses, or names of contacts; you yourself are "me"
        day: such as 2026-03-02
        """
        if not 0 < minutes <= 480:
            raise ValueError("minutes must be between 1 and 480")
        return list(session.free(session.addresses(people), date_of(day), minutes))

    @tool
    async def search_contacts(self, text: str, session: Office) -> list[Json]:
        """Find contacts by words in their name, address, phone, company or role; empty for all."""
        words = text.casefold().split()
        contacts = session.tables["contacts"].items()
        return [{"id": name, **each} for name, each in contacts if _has(words, each)][:MOST_FOUND]

    @tool
    async def add_contact(
        self, name: str, email: str, session: Office, phone: str = "", company: str = "", role: str = ""
    ) -> Json:
        """Add a person to the contacts."""
        if "@" not in email:
            raise ValueError(f"{email[:60]!r} is not an address")
        if any(each["email"] == email for each in session.tables["contacts"].values()):
            raise ValueError(f"{email[:60]} is a contact already")
        record = {"name": name, "email": email, "phone": phone, "company": company, "role": role}
        return {"id": session.add("contacts", record), **record}

    @tool
    async def update_contact(
        self, contact_id: str, field: Literal["email", "phone", "company", "role"], value: str, session: Office
    ) -> Json:
        """Change one field of a contact."""
        contact = session.record("contacts", contact_id)
        contact[field] = value[:200]
        return {"id": contact_id, **contact}

    async def verify(self, task: Json, response: Response, session: Office) -> Json:
        """Compare the changes with the expected ones, and the answer with the required text."""
        wanted = wanted_changes(task)
        made, unwanted = pair_up(wanted, session.changes())
        said = is_said(task, "answer", response.text[-20_000:])
        good = made == len(wanted) and not unwanted and said
        score = {"reward": float(good), "changes_made": made, "changes_wanted": len(wanted)}
        return {**score, "unwanted_changes": unwanted, "answer_right": float(said)}

    def reference_answer(self, task: Json) -> Any:
        """The task's `reference_calls`, one model call each, and the final answer."""
        calls = task.get("reference_calls")
        return None if calls is None else reference_moves(calls, task)

    def wrong_answers(self, task: Json) -> Json:
        """The task half done, done twice, or done for another person."""
        return wrong_moves(task)

    def cheats(self, task: Json) -> Json:
        """Claims, damage that looks like work, and calls that try to read the task's record."""
        return office_cheats(task)

    def _send(self, session: Office, to: list[str], subject: str, body: str, **origin: str) -> Json:
        date = session.now.strftime(FORM)
        record = {"folder": "sent", "sender": session.me, "to": to, "date": date, "subject": subject, "body": body}
        return {"id": session.add("mail", {**record, **origin}), "to": to, "subject": subject}


def _has(words: list[str], record: Json) -> bool:
    text = " ".join(map(str, record.values())).casefold()
    return all(word in text for word in words)


def _own(session: Office, event_id: str) -> Json:
    event = session.record("events", event_id)
    if event["owner"] != session.me:
        raise ValueError(f"{event_id} belongs to {event['owner']}; ask them by mail")
    return event


def _at(start: str, minutes: int) -> str:
    if not 0 < minutes <= 480:
        raise ValueError("minutes must be between 1 and 480")
    begins = moment(start)
    if (begins + timedelta(minutes=minutes)).date() != begins.date():
        raise ValueError("an event must end on the day it begins")
    return begins.strftime(FORM)
