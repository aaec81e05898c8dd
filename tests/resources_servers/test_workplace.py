"""workplace: what has changed decides, all of it and nothing else; every rollout has an office of its own."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.resources_servers.workplace.app import Workplace
from velodrome.resources_servers.workplace.workplace_changes import OfficeChange, changes, unmet
from velodrome.resources_servers.workplace.workplace_office import Office

Json = dict[str, Any]
Says = Callable[..., Json]
HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "workplace"
TASKS = {row["id"]: row for row in map(json.loads, (HOME / "data" / "example.jsonl").read_text().splitlines())}
BEN = "ben@lumen.example"


def played(says: Says, task: Json, calls: list[tuple[str, Json]]) -> tuple[list[str], Json]:
    environment = Workplace()

    async def main() -> tuple[list[str], Json]:
        session = await environment.open(task)
        texts = [await environment.call(session, name, arguments) for name, arguments in calls]
        return texts, await environment.score(session, task, says("Done."))

    return asyncio.run(main())


def test_what_was_asked_and_nothing_else(says: Says) -> None:
    task = TASKS["cancel-lunch"]
    before = copy.deepcopy(task)
    cancel = ("cancel_event", {"event_id": "e2"})
    mail = ("send_mail", {"to": ["Ben@Lumen.example"], "subject": "lunch", "body": "I am SORRY"})
    damage = ("delete_mail", {"mail_id": "m1"})
    looks = ("read_mail", {"mail_id": "m1"})
    for calls, score in (
        ([cancel, mail], (1.0, 0, 0)),
        ([mail, looks, cancel], (1.0, 0, 0)),
        ([cancel], (0.0, 1, 0)),
        ([cancel, mail, damage], (0.0, 0, 1)),
        ([cancel, mail, mail], (0.0, 0, 1)),
        ([], (0.0, 2, 0)),
    ):
        result = played(says, task, calls)[1]
        assert (result["reward"], result["missing"], result["unexpected"]) == score
    assert task == before


def test_mistakes_are_told_and_change_nothing(says: Says) -> None:
    task = TASKS["cancel-lunch"]
    wrong: list[tuple[str, Json]] = [
        ("read_mail", {"mail_id": "m99"}),
        ("send_mail", {"to": ["Ben"], "subject": "a", "body": "b"}),
        ("send_mail", {"to": [], "subject": "a", "body": "b"}),
        ("send_mail", {"to": [BEN], "subject": "a", "body": "b" * 30_000}),
        ("move_event", {"event_id": "e2", "start": "2026-03-02T13:00", "end": "2026-03-02T12:00"}),
        ("create_event", {"title": "x", "start": "tomorrow", "end": "2026-03-02T12:00", "attendees": [BEN]}),
        ("find_free_slot", {"attendees": [BEN], "day": "Tuesday", "minutes": 30}),
        ("find_free_slot", {"attendees": [BEN], "day": "2026-03-03", "minutes": 0}),
    ]
    texts, result = played(says, task, wrong)
    assert all(text.startswith("error: ") for text in texts)
    assert result["made"] == 0


def test_a_free_slot_is_free_for_all_and_in_working_hours() -> None:
    office = Office(TASKS["meet-ben"]["office"])
    assert office.free_slot([BEN], "2026-03-03", 30) == "2026-03-03T10:30"
    assert office.free_slot([BEN], "2026-03-03", 60) == "2026-03-03T11:30"
    assert office.free_slot([BEN], "2026-03-03", 480) is None


def test_every_difference_is_a_change() -> None:
    before = {"mails": [{"id": "a", "x": 1}, {"id": "b", "x": 1}, {"id": "c", "x": 1}]}
    after = {"mails": [{"id": "a", "x": 2}, {"id": "b", "x": 1}, {"id": "d", "x": 1}]}
    assert sorted(changes(before, after), key=lambda each: each.record_id) == [
        OfficeChange("change", "mails", "a", {"x": 2}),
        OfficeChange("remove", "mails", "c", {}),
        OfficeChange("add", "mails", "d", {"id": "d", "x": 1}),
    ]


def test_a_change_of_more_than_was_asked_does_not_fit() -> None:
    expected = [{"change": "change", "kind": "contacts", "id": "c1", "fields": {"phone": "1"}}]
    assert unmet(expected, [OfficeChange("change", "contacts", "c1", {"phone": "1"})]) == (0, 0)
    assert unmet(expected, [OfficeChange("change", "contacts", "c1", {"phone": "1", "email": "x"})]) == (1, 1)
    assert unmet(expected, [OfficeChange("change", "contacts", "c2", {"phone": "1"})]) == (1, 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"office": None}, '"office" must have the lists'),
        ({"office": {"mails": [], "events": [], "contacts": []}}, '"office" must have "me"'),
        ({"expected_changes": []}, '"expected_changes" must be a list'),
        ({"expected_changes": [{"change": "edit", "kind": "mails"}]}, '"expected_changes" must be a list'),
        ({"expected_changes": [{"change": "remove", "kind": "mails"}]}, '"expected_changes" must be a list'),
    ],
)
def test_a_task_that_is_wrong_is_blamed(says: Says, changed: Json, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        played(says, {**TASKS["meet-ben"], **changed}, [])
