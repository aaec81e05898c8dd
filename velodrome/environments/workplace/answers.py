"""Answers for the examination: reference, wrong answers and cheats."""

from __future__ import annotations

from typing import Any

from velodrome.environments.workplace.checks import EXCLUDES, INCLUDES

Json = dict[str, Any]


def reference_moves(calls: list[Json], task: Json) -> list[Any]:
    """One model call for each tool call, then the final answer."""
    return [*({"tool_calls": [call]} for call in calls), final(task)]


def final(task: Json) -> str:
    """The text that the task requires."""
    return " ".join(["Done.", *task.get("answer_includes", [])])


def wrong_moves(task: Json) -> Json:
    """The reference, each with one mistake."""
    calls = task.get("reference_calls") or []
    last = final(task)
    wrong: Json = {
        "a mail too many": [*reference_moves(calls, task)[:-1], _mail("Everything is done."), last],
        "a contact changed by the way": [*reference_moves(calls, task)[:-1], _contact("c-01"), last],
        "mail thrown away by the way": [*reference_moves(calls, task)[:-1], _trash("m-02"), last],
    }
    if task.get("changes"):
        wrong["nothing done"] = last
        wrong["the last step left out"] = [*reference_moves(calls, task)[:-2], last]
        if "add" in task["changes"][-1] and task["changes"][-1]["table"] != "contacts":  # the same contact is refused
            wrong["the last step twice"] = [*reference_moves(calls, task)[:-1], {"tool_calls": [calls[-1]]}, last]
    if task.get("answer_includes"):
        wrong["done, but not said"] = [*reference_moves(calls, task)[:-1], "Done."]
    return wrong


def office_cheats(task: Json) -> Json:
    """Attempts to get the reward without doing the task."""
    said = {"changes_made": len(task.get("changes", [])), "unwanted_changes": 0, "reward": 1.0}
    calls = {
        "a session of its own": {"name": "search_mail", "arguments": {"text": "", "session": {"me": "x"}}},
        "asks for verify": {"name": "verify", "arguments": {"task": task.get("id"), "reward": 1.0}},
        "seeds again": {"name": "seed_session", "arguments": {"task": {"changes": []}}},
        "writes the record": {"name": "update_contact", "arguments": _patch("c-01", "changes", "[]")},
        "cancels an event of somebody else": {"name": "cancel_event", "arguments": {"event_id": "e-03"}},
    }
    pretended: Json = {name: [{"tool_calls": [call]}, final(_silent(task))] for name, call in calls.items()}
    return {
        **pretended,
        **_every_value(task),
        "only says so": f"I have done all of it as asked. {said}",
        "mails everybody": [_mail("See what fits.", everybody=True), final(task)],
        "throws everything away": [*(_trash(f"m-{number:02}") for number in range(1, 13)), final(task)],
        "says everything it can find": [{"tool_calls": [_all_contacts()]}, _every_phrase(task)],
    }


def _silent(task: Json) -> Json:
    """The task without the required text of the answer, which a cheat cannot know."""
    return {name: value for name, value in task.items() if name != "answer_includes"}


def _every_phrase(task: Json) -> str:
    """The right answer among all others if the task has an answer; otherwise a claim."""
    if not task.get("answer_includes"):
        return "Done."
    return " or ".join([*task["answer_includes"], *task.get("answer_excludes", ["anything"])])


def _every_value(task: Json) -> Json:
    """The right work with a text that names every number, time and phone number that the task does not forbid."""
    told = [task, *(change.get("add") or change.get("set") or {} for change in task.get("changes", []))]
    wanted, forbidden = (
        [phrase for fields in told for name in fields if name.endswith(end) for phrase in fields[name]]
        for end in (INCLUDES, EXCLUDES)
    )
    if not any(map(str.isdigit, "".join(wanted))):
        return {}
    values = [f"{hour:02}:{minute:02}" for hour in range(8, 21) for minute in (0, 30)]
    values += [f"{number:,}" for number in (*range(500), *range(1100, 1300))]
    values += [f"+{area} 555 01{number:02}" for area in ("351 21", "46 8") for number in range(100)]
    values += [phrase for phrase in wanted if phrase not in values]  # what a longer list would have, too
    text = " ".join(value for value in values if not any(phrase in value for phrase in forbidden))
    calls = [_with_body(call, text) for call in task.get("reference_calls", [])]
    return {"names every value": [*({"tool_calls": [call]} for call in calls), text]}


def _with_body(call: Json, text: str) -> Json:
    arguments = call["arguments"]
    return {**call, "arguments": {**arguments, "body": text}} if "body" in arguments else call


def _mail(body: str, *, everybody: bool = False) -> Json:
    people = ["ana.costa@brightfield.example", "li.wei@lindenworks.example", "omar.haddad@lindenworks.example"]
    to = people if everybody else people[:1]
    return {"tool_calls": [{"name": "send_mail", "arguments": {"to": to, "subject": "Update", "body": body}}]}


def _contact(name: str) -> Json:
    return {"tool_calls": [{"name": "update_contact", "arguments": _patch(name, "phone", "000")}]}


def _patch(name: str, field: str, value: str) -> Json:
    return {"contact_id": name, "field": field, "value": value}


def _trash(name: str) -> Json:
    return {"tool_calls": [{"name": "move_mail", "arguments": {"mail_id": name, "folder": "trash"}}]}


def _all_contacts() -> Json:
    return {"name": "search_contacts", "arguments": {"text": ""}}
