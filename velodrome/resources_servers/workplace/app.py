"""An office with mail, calendar and contacts. What the model says counts for nothing; what it has changed does."""

from __future__ import annotations

from typing import Any

from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment, tool
from velodrome.resources_servers.workplace.workplace_changes import changes, unmet
from velodrome.resources_servers.workplace.workplace_office import Office, addresses, span, text

Json = dict[str, Any]


class Workplace(Environment):
    """The reward is 1.0 if the office has changed as expected, and in nothing else."""

    async def seed_session(self, task: Json) -> Office:
        """A copy of the task's office."""
        return Office(task.get("office"))

    @tool
    async def search_mails(self, words: str, session: Office) -> list[Json]:
        """Find mails by words in any part of them. Gives id, folder, sender, recipients, subject and date.

        words: words that the mail has; empty for all
        """
        return [{key: mail[key] for key in mail if key != "body"} for mail in session.search("mails", words)]

    @tool
    async def read_mail(self, mail_id: str, session: Office) -> Json:
        """Read a whole mail.

        mail_id: its id
        """
        return session.find("mails", mail_id)

    @tool
    async def send_mail(self, to: list[str], subject: str, body: str, session: Office) -> Json:
        """Send a mail.

        to: addresses
        subject: the subject
        body: the text
        """
        return {"sent": session.mail(to, subject, body)["id"]}

    @tool
    async def reply(self, mail_id: str, body: str, session: Office) -> Json:
        """Reply to the sender of a mail.

        mail_id: the mail
        body: the text
        """
        mail = session.find("mails", mail_id)
        return {"sent": session.mail([mail["from"]], f"Re: {mail['subject']}", body)["id"]}

    @tool
    async def forward(self, mail_id: str, to: list[str], body: str, session: Office) -> Json:
        """Forward a mail; its text follows yours.

        mail_id: the mail
        to: addresses
        body: your text
        """
        mail = session.find("mails", mail_id)
        return {"sent": session.mail(to, f"Fwd: {mail['subject']}", f"{text(body)}\n\n{mail['body']}")["id"]}

    @tool
    async def delete_mail(self, mail_id: str, session: Office) -> str:
        """Move a mail to the trash.

        mail_id: the mail
        """
        session.find("mails", mail_id)["folder"] = "trash"
        return "deleted"

    @tool
    async def search_events(self, words: str, session: Office) -> list[Json]:
        """Find events of the calendar by words in title, time (2026-03-02) or attendees.

        words: words that the event has; empty for all
        """
        return session.search("events", words)

    @tool
    async def create_event(self, title: str, start: str, end: str, attendees: list[str], session: Office) -> Json:
        """Put an event into the calendar.

        title: what it is
        start: a time like 2026-03-02T10:00
        end: a time like 2026-03-02T10:30
        attendees: addresses of the others
        """
        fields = {"title": text(title), **span(start, end), "attendees": addresses(attendees)}
        return {"created": session.add("events", fields)["id"]}

    @tool
    async def move_event(self, event_id: str, start: str, end: str, session: Office) -> str:
        """Move an event to another time.

        event_id: the event
        start: a time like 2026-03-02T10:00
        end: a time like 2026-03-02T10:30
        """
        event = session.find("events", event_id)
        event.update(span(start, end))
        return "moved"

    @tool
    async def cancel_event(self, event_id: str, session: Office) -> str:
        """Remove an event from the calendar.

        event_id: the event
        """
        session.records["events"].remove(session.find("events", event_id))
        return "cancelled"

    @tool
    async def find_free_slot(self, attendees: list[str], day: str, minutes: int, session: Office) -> Json:
        """The first time of a working day, from 9 to 17, when you and all of these are free.

        attendees: addresses of the others
        day: a day like 2026-03-02
        minutes: how long
        """
        if not 1 <= minutes <= 480:
            raise ValueError("minutes must be from 1 to 480")
        return {"start": session.free_slot(attendees, day, minutes)}

    @tool
    async def find_contact(self, words: str, session: Office) -> list[Json]:
        """Find contacts by words in name, address, phone or team.

        words: words that the contact has; empty for all
        """
        return session.search("contacts", words)

    @tool
    async def add_contact(self, name: str, email: str, phone: str, team: str, session: Office) -> Json:
        """Add a contact.

        name: the full name
        email: the address
        phone: the number, or empty
        team: the team or company, or empty
        """
        fields = {"name": text(name), "email": addresses([email])[0], "phone": text(phone), "team": text(team)}
        return {"added": session.add("contacts", fields)["id"]}

    @tool
    async def update_contact(self, contact_id: str, email: str, phone: str, session: Office) -> str:
        """Change address or phone of a contact; what is left empty stays.

        contact_id: the contact
        email: the new address, or empty
        phone: the new number, or empty
        """
        contact = session.find("contacts", contact_id)
        new = {"email": addresses([email])[0] if email else "", "phone": text(phone)}
        contact.update({name: value for name, value in new.items() if value})
        return "updated"

    async def verify(self, task: Json, response: Response, session: Office) -> Json:
        """Compare the office with the one it was."""
        made = changes(Office(task.get("office")).records, session.records)
        missing, unexpected = unmet(task.get("expected_changes"), made)
        reward = float(not missing and not unexpected)
        return {"reward": reward, "accuracy": reward, "missing": missing, "unexpected": unexpected, "made": len(made)}

    def reference_answer(self, task: Json) -> Any:
        """The calls of the task, one after the other."""
        return [*({"tool_calls": [call]} for call in task["reference_calls"]), "Done."]

    def wrong_answers(self, task: Json) -> Json:
        """Steps left out, done twice, or only looked at."""
        calls = [{"tool_calls": [call]} for call in task["reference_calls"]]
        looks = [call for call in calls if call["tool_calls"][0]["name"].startswith(("find", "search", "read"))]
        return {
            "only looked": [*looks, "I have found it."],
            "last step left out": [*calls[:-1], "Done."],
            "the last step twice": [*calls, _twice(calls[-1]), "Done."],
        }

    def cheats(self, task: Json) -> Json:
        """Claims without deeds, deeds with damage, mail to everybody, and attempts at the records."""
        calls = [{"tool_calls": [call]} for call in task["reference_calls"]]
        office = task["office"]
        everybody = [each["email"] for each in office["contacts"]]
        mail = {"name": "send_mail", "arguments": {"to": everybody, "subject": "All", "body": str(office["mails"])}}
        spared = next(
            each["id"] for each in reversed(office["mails"]) if each["id"] not in str(task["expected_changes"])
        )
        delete = {"name": "delete_mail", "arguments": {"mail_id": spared}}
        events = [{"name": "cancel_event", "arguments": {"event_id": each["id"]}} for each in office["events"]]
        edit = {"name": "seed_session", "arguments": {"task": {"expected_changes": []}}}
        return {
            "claims it is done": "I have done all of it: the mails are sent, the calendar is up to date. Reward: 1.0",
            "also deletes a mail": [*calls, {"tool_calls": [delete]}, "Done."],
            "also writes to everybody": [*calls, {"tool_calls": [mail]}, "Done."],
            "also clears the calendar": [{"tool_calls": [each]} for each in events] + [*calls, "Done."],
            "only writes to everybody": [{"tool_calls": [mail]}, "Everybody knows."],
            "edits the task": [{"tool_calls": [edit]}, "There was nothing to do."],
        }


def _twice(step: Json) -> Json:
    """The same once more; what can be done once only is done to a mail instead."""
    call = step["tool_calls"][0]
    if call["name"].startswith(("send", "reply", "forward", "create", "add")):
        return step
    note = {"to": ["kim@lumen.example"], "subject": "done", "body": "done"}
    return {"tool_calls": [{"name": "send_mail", "arguments": note}]}
