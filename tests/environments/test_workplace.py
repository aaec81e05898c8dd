"""The office: its tools, and the comparison of how it is left with what the task wants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.resources_servers.playing import example_tasks, opened, play
from velodrome.environments.workplace.app import Workplace
from velodrome.environments.workplace.checks import says
from velodrome.environments.workplace.office import MOST_NEW, Office

TASKS = example_tasks("workplace")
EMPTY = {"changes": [], "answer_includes": ["x"]}


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("read_mail", {"mail_id": "m-99"}, "error: there is no record 'm-99' in mail; search for it first"),
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
        (
            "create_event",
            {"title": "a", "start": "2026-03-02 23:30", "minutes": 60},
            "error: an event must end on the day it begins",
        ),
    ],
)
def test_the_model_is_told_of_its_mistakes(name: str, arguments: dict[str, Any], said: str):
    assert opened(Workplace(), EMPTY, (name, arguments)) == [said]


def test_free_times_are_free_for_everybody():
    (text,) = opened(
        Workplace(), EMPTY, ("find_free_times", {"people": ["me", "Li Wei"], "day": "2026-03-02", "minutes": 60})
    )
    times = json.loads(text)
    assert (times[0], times[-1]) == ("2026-03-02 09:00", "2026-03-02 16:00")
    assert "2026-03-02 11:00" in times
    assert not {"2026-03-02 09:30", "2026-03-02 14:00"} & {*times}  # the team meeting is at 10:00, Li's at 14:00


def test_a_session_adds_a_bounded_number_of_records():
    office = Office()
    for _ in range(MOST_NEW):
        office.add("contacts", {"name": "a", "email": "b@c"})
    with pytest.raises(ValueError, match="no more than 200 records"):
        office.add("contacts", {"name": "a", "email": "b@c"})


def test_a_task_may_bring_an_office_of_its_own_and_an_undone_change_is_no_change():
    office = {"me": "me@x.example", "now": "2026-03-02 08:30", "contacts": {}}
    contact = {"name": "add_contact", "arguments": {"name": "A", "email": "a@b.example"}}
    wanted = {"table": "contacts", "add": {"email": "a@b.example"}}
    task = {"responses_create_params": {"input": "Add A."}, "office": office, "changes": [wanted]}
    assert play(Workplace(), task, {"tool_calls": [contact]}, "Done.")["reward"] == 1.0
    moved, back = ({"name": "move_mail", "arguments": {"mail_id": "m-01", "folder": to}} for to in ("trash", "inbox"))
    reference = Workplace().reference_answer(TASKS["cancel-lunch"])
    row = play(Workplace(), TASKS["cancel-lunch"], {"tool_calls": [moved, back]}, *reference)
    assert (row["reward"], row["unwanted_changes"]) == (1.0, 0)


@pytest.mark.parametrize("name", ["arrival", "numbers-for-grace"])
def test_a_mail_that_says_everything_says_nothing(name: str):
    task = json.loads(json.dumps(TASKS[name]))
    times = " ".join(f"{hour}:{minute}" for hour in range(8, 21) for minute in ("00", "30"))
    everything = times + " ".join(mail["body"] for mail in Office().tables["mail"].values())
    answer = Workplace().reference_answer(task)
    for call in (call for turn in answer if isinstance(turn, dict) for call in turn["tool_calls"]):
        if "body" in call["arguments"]:
            call["arguments"] = {**call["arguments"], "body": everything}
    assert play(Workplace(), task, *answer)["reward"] == 0.0


@pytest.mark.parametrize(
    ("text", "includes", "right"),
    [
        ("400 chairs at 58 euros each, by 6 March at 12:00 (HM-7741)", ["400", "58"], True),
        ("Our order was 1184.00 euros.", ["1,184"], True),
        ("Call\u00a0her: +351 (21) 555-0110.", ["+351 21 555 0110"], True),
        ("It is cancelled.", ["cancel*"], True),
        ("400 or 401 chairs at 58 euros", ["400", "58"], False),
        ("400-500 chairs", ["400"], False),
        ("57/58/59, 400", ["400", "58"], False),
        ("57,58,59 and x-400", ["58"], False),
        ("1,580 chairs", ["58"], False),
        ("at 19:30 or 20:00", ["19:30"], False),
        ("It is cancelled.", ["cancel"], False),
        ("I do not know.", ["no"], False),
    ],
)
def test_a_phrase_is_whole_words_and_a_value_has_no_other_of_its_kind_beside_it(
    text: str, includes: list[str], right: bool
):
    assert says(text, includes) is right
