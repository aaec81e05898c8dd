"""The office: its tools, and the comparison of how it is left with what the task wants."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError, ToolError
from velodrome.resources_servers.workplace.app import Workplace
from velodrome.resources_servers.workplace.workplace_office import MOST_NEW, Office
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

DATA = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "workplace" / "data" / "example.jsonl"
TASKS = {task["id"]: task for task in map(json.loads, DATA.read_text().splitlines())}
EMPTY = {"changes": [], "answer_includes": ["x"]}


def played(task: dict[str, Any], answer: Any) -> dict[str, Any]:
    answers = answer if isinstance(answer, list) else [answer]
    agent = SimpleAgent(model=ScriptedModel(answers=answers), environment=Workplace())
    return asyncio.run(agent.run(task))


async def ask(name: str, **arguments: Any) -> str:
    environment = Workplace()
    session = await environment.open(EMPTY)
    return await environment.call(session, name, arguments)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_references_earn_all_and_cheats_nothing(task: dict[str, Any]) -> None:
    environment = Workplace()
    assert played(task, environment.reference_answer(task))["reward"] == 1.0
    for name, answer in environment.wrong_answers(task).items():
        assert played(task, answer)["reward"] < 1.0, name
    for name, answer in environment.cheats(task).items():
        assert played(task, answer)["reward"] == 0.0, name


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("read_mail", {"mail_id": "m-99"}, "error: there is no record 'm-99' in mail; search for it first"),
        (
            "move_event",
            {"event_id": "e-02", "start": "soon"},
            "error: 'soon' is not a time; write it as 2026-03-02 14:30",
        ),
        (
            "cancel_event",
            {"event_id": "e-03"},
            "error: e-03 belongs to grace.okafor@lindenworks.example; ask them by mail",
        ),
        (
            "send_mail",
            {"to": ["Tom"], "subject": "a", "body": "b"},
            "error: 'Tom' may be any of tom.berg@lindenworks.example, tom.birch@alderpress.example; give the address",
        ),
        ("send_mail", {"to": [], "subject": "a", "body": "b"}, "error: give at least one person"),
        (
            "send_mail",
            {"to": ["me"], "subject": "a", "body": "b" * 10_001},
            "error: a text may have 10000 characters, not 10001",
        ),
        (
            "create_event",
            {"title": "a", "start": "2026-03-02 23:30", "minutes": 60},
            "error: an event must end on the day it begins",
        ),
        ("list_events", {"day": "Monday"}, "error: 'Monday' is not a day; write it as 2026-03-02"),
    ],
)
def test_the_model_is_told_of_its_mistakes(name: str, arguments: dict[str, Any], said: str) -> None:
    assert asyncio.run(ask(name, **arguments)) == said


def test_free_times_are_free_for_everybody() -> None:
    times = json.loads(asyncio.run(ask("find_free_times", people=["me", "Li Wei"], day="2026-03-02", minutes=60)))
    assert times[0] == "2026-03-02 09:00"
    assert "2026-03-02 09:30" not in times  # the team meeting begins at 10:00
    assert "2026-03-02 11:00" in times
    assert "2026-03-02 14:00" not in times  # Li's
    assert times[-1] == "2026-03-02 16:00"


def test_a_session_adds_a_bounded_number_of_records() -> None:
    office = Office()
    for _ in range(MOST_NEW):
        office.add("contacts", {"name": "a", "email": "b@c"})
    with pytest.raises(ValueError, match="no more than 200 records"):
        office.add("contacts", {"name": "a", "email": "b@c"})


def test_an_undone_change_is_no_change() -> None:
    moved = {"name": "move_mail", "arguments": {"mail_id": "m-01", "folder": "trash"}}
    back = {"name": "move_mail", "arguments": {"mail_id": "m-01", "folder": "inbox"}}
    reference = Workplace().reference_answer(TASKS["cancel-lunch"])
    row = played(TASKS["cancel-lunch"], [{"tool_calls": [moved]}, {"tool_calls": [back]}, *reference])
    assert (row["reward"], row["unwanted_changes"]) == (1.0, 0)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({}, 'no "changes" in the task'),
        ({"changes": []}, "doing nothing would earn the reward"),
        ({"changes": [{"table": "mails", "add": {}}]}, 'each has a "table"'),
        ({"changes": [{"table": "mail"}]}, 'one of "add", "set" and "remove"'),
        ({"changes": [{"table": "mail", "remove": True}]}, 'need an "id"'),
        ({"changes": [{"table": "mail", "add": ["x"]}]}, "are objects of fields"),
    ],
)
def test_a_task_that_cannot_be_checked_is_refused_before_the_first_call(task: dict[str, Any], problem: str) -> None:
    with pytest.raises((TaskError, ToolError), match=problem) as caught:
        asyncio.run(Workplace().open(task))
    assert caught.value.boundary == "input"


def test_a_task_may_bring_an_office_of_its_own() -> None:
    office = {"me": "me@x.example", "now": "2026-03-02 08:30", "contacts": {}}
    contact = {"name": "add_contact", "arguments": {"name": "A", "email": "a@b.example"}}
    wanted = {"table": "contacts", "add": {"email": "a@b.example"}}
    task = {"responses_create_params": {"input": "Add A."}, "office": office, "changes": [wanted]}
    assert played(task, [{"tool_calls": [contact]}, "Done."])["reward"] == 1.0


@pytest.mark.parametrize(
    ("office", "problem"),
    [
        ([], '"office" must be an object'),
        ({"me": "a", "now": "soon"}, '"office.now" must be a time'),
        ({"me": "a", "now": "2026-03-02 08:30", "mail": []}, '"office.mail" must be an object'),
        (
            {"me": "a", "now": "2026-03-02 08:30", "events": {"e": {"title": "x"}}},
            "'e' lacks attendees, minutes, owner",
        ),
    ],
)
def test_an_office_that_lacks_something_is_refused(office: Any, problem: str) -> None:
    with pytest.raises((TaskError, ToolError), match=problem):
        asyncio.run(Workplace().open({**EMPTY, "office": office}))


@pytest.mark.parametrize("text", ["x" * 3_000_000, "[" * 100_000, "\ud800", "\0", ""])
def test_hostile_answers_are_only_wrong(text: str) -> None:
    assert played(TASKS["how-strong"], text)["reward"] == 0.0


@pytest.mark.parametrize("name", ["arrival", "numbers-for-grace", "invoice", "interview", "out-on-thursday"])
def test_a_mail_that_says_everything_says_nothing(name: str) -> None:
    task = json.loads(json.dumps(TASKS[name]))
    times = " ".join(f"{hour}:{minute}" for hour in range(8, 21) for minute in ("00", "30"))
    everything = times + " ".join(mail["body"] for mail in Office().tables["mail"].values())
    answer = Workplace().reference_answer(task)
    for call in (call for turn in answer if isinstance(turn, dict) for call in turn["tool_calls"]):
        if "body" in call["arguments"]:
            call["arguments"] = {**call["arguments"], "body": everything}
    assert played(task, answer)["reward"] == 0.0
