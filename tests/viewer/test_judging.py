"""People judge rollouts on their pages: who may, what is kept, and what a page of another site cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_runs import HOSTILE, make_run, rows_of, write
from parsed_page import Page
from starlette.testclient import TestClient
from viewing import ODD, page_at, viewing

from velodrome.records.people.judgements import Judgements, make_judgement, notes_file, save_judgement
from velodrome.viewer.static_copy import write_copy
from velodrome.viewer.viewed_file import opened

PLACE = "/run/baseline/rollout/1"
FORM = f"{PLACE}/judgement"


@pytest.fixture
def client(run: Path) -> Iterator[TestClient]:
    with viewing(run, person="anna") as client:
        yield client


def fields(client: TestClient, place: str = PLACE) -> dict[str, str]:
    """What a browser would send of the form on the page."""
    text = client.get(place).text
    part = text[text.index("data-form") : text.index("</form>", text.index("data-form"))]
    values = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', part))
    return {**values, "rating": "", "tags": "", "note": ""}


def said(run: Path) -> dict[tuple[str, str], tuple[tuple[str, ...], str, int | None]]:
    notes = Judgements(notes_file(run)).refresh()
    return {(each.key, each.by): (each.tags, each.note, each.rating) for each in notes}


def test_a_plain_form_saves_and_leads_back(client: TestClient, run: Path):
    place = f"{PLACE}?q=reward%3C2"
    assert fields(client, place)["to"] == place
    answer = client.post(FORM, data={**fields(client, place), "rating": "4", "tags": "good, lucky", "note": "a\r\nb"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{place}#judgement")
    assert said(run) == {("task-009/0", "anna"): (("good", "lucky"), "a\nb", 4)}
    page = page_at(client, PLACE)
    assert "anna ★★★★ ☆ good lucky a b" in page.words
    assert "Change your judgement" in page.words
    assert 'value="4" checked' in client.get(PLACE).text
    listed = page_at(client, "/run/baseline/rollouts?q=tag:lucky").words
    assert (listed.count("task-009/0"), "finished 4 good, lucky task-009/0" in listed) == (1, True)
    client.post(FORM, data=fields(client))  # everything emptied takes it back
    assert said(run) == {}


def test_every_person_is_heard_and_each_browser_has_its_name(run: Path):
    with viewing(run, person="anna") as first:
        second = TestClient(first.app, base_url="http://127.0.0.1", follow_redirects=False)
        named = second.post("/person", data={**fields(second), "by": "  Zoë  Ünal "})
        assert (named.status_code, named.headers["location"]) == (303, f"{PLACE}#judgement")
        assert "HttpOnly" in named.headers["set-cookie"]
        assert "SameSite=strict" in named.headers["set-cookie"]
        assert (fields(first)["by"], fields(second)["by"]) == ("anna", "Zoë Ünal")
        first.post(FORM, data={**fields(first), "rating": "5"})
        second.post(FORM, data={**fields(second), "rating": "1", "tags": "bad"})
        first.post(FORM, data={**fields(first), "rating": "4"})
        expected = {("task-009/0", "anna"): ((), "", 4), ("task-009/0", "Zoë Ünal"): (("bad",), "", 1)}
        assert said(run) == expected
        assert 'value="bad"' in first.get(FORM).text  # a tag of one is offered to the other
        for by in ("", " ", "x" * 61):
            assert second.post("/person", data={**fields(second), "by": by}).status_code == 403


def test_the_page_changes_its_version_when_somebody_judges(client: TestClient, run: Path):
    before = client.get("/run/baseline/pulse").json()["version"]
    save_judgement(run, make_judgement("task-009/0", "ben", rating=2))
    assert client.get("/run/baseline/pulse").json()["version"] != before


@pytest.mark.parametrize(
    ("headers", "change", "status"),
    [
        ({"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}, {}, 303),
        ({}, {"token": "guess"}, 400),
        ({}, {"token": ""}, 400),
        ({"origin": "https://evil.example"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({"origin": "http://127.0.0.1:81"}, {}, 403),
        ({"sec-fetch-site": "cross-site"}, {}, 400),
        ({"sec-fetch-site": "same-site"}, {}, 400),
        ({"sec-fetch-site": "none"}, {}, 400),
        ({"host": "evil.example"}, {}, 421),
        ({"content-type": "application/json"}, {}, 415),
        ({"content-type": "text/plain"}, {}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, {}, 415),
    ],
)
def test_only_the_viewers_own_pages_can_change_anything(
    client: TestClient, run: Path, headers: dict[str, str], change: dict[str, str], status: int
):
    for path in (FORM, "/person"):
        answer = client.post(path, data={**fields(client), "rating": "1", **change}, headers=headers)
        assert answer.status_code == (403 if path == "/person" and status == 400 else status)
        assert (status == 303) == ("set-cookie" in answer.headers or (path == FORM and answer.status_code == 303))
    assert bool(said(run)) == (status == 303)


def test_only_a_post_changes_anything(client: TestClient, run: Path):
    values = {**fields(client), "rating": "1"}
    assert client.get(FORM, params=values).status_code == 200
    assert client.get("/person", params=values).status_code == 405
    assert client.put(FORM, data=values).status_code == 405
    assert not notes_file(run).exists()


def test_a_token_does_not_let_other_sites_write(run: Path):
    with viewing(run, token="s3cret", host="127.0.0.1") as client:
        assert client.post(FORM, data={"rating": "1"}).status_code == 401
        client.post("/sign-in", data={"token": "s3cret", "to": "/"})
        values = {**fields(client), "rating": "1"}
        for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
            assert client.post(FORM, data=values, headers=headers).status_code == 400
        assert not notes_file(run).exists()
        assert client.post(FORM, data=values, headers={"origin": "http://127.0.0.1"}).status_code == 303
        assert len(said(run)) == 1


def test_a_viewer_beyond_loopback_only_shows_unless_it_is_told_to_edit(run: Path):
    save_judgement(run, make_judgement("task-009/0", "ben", rating=2))
    with viewing(run, token="s3cret", host="10.0.0.5") as client:
        client.headers["authorization"] = "Bearer s3cret"
        page = page_at(client, PLACE)
        assert "ben ★★" in page.words
        assert "Judge this rollout" not in page.words
        assert "<textarea" not in client.get(PLACE).text
        refused = client.post(FORM, data={"rating": "1", "key": "task-009/0"})
        assert (refused.status_code, len(said(run))) == (403, 1)
        assert client.post("/person", data={"by": "eve"}).status_code == 403
    with viewing(run, token="s3cret", host="10.0.0.5", edit=True) as client:
        client.headers["authorization"] = "Bearer s3cret"
        assert "Your name, to judge this rollout" in page_at(client, PLACE).words  # nobody is somebody else
        token = re.search(r'name="token" value="([^"]+)"', client.get(PLACE).text)
        assert token
        client.post("/person", data={"by": "eve", "token": token[1], "to": PLACE})
        assert client.post(FORM, data={**fields(client), "rating": "1"}).status_code == 303
        assert said(run)["task-009/0", "eve"] == ((), "", 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rating": "9"}, "rating: '9'"),
        ({"rating": "²"}, "rating: '²'"),
        ({"tags": "x" * 61}, "tags:"),
        ({"by": ""}, "by:"),
        ({"note": "word " * 2100}, "note:"),
        ({"of": "another"}, "another rollout is here now"),
        ({"token": "old"}, "started again"),
    ],
)
def test_what_was_typed_comes_back_with_the_reason(client: TestClient, run: Path, change: dict[str, str], why: str):
    typed = {**fields(client), "note": "a long thought", "tags": "kept", **change}
    answer = client.post(FORM, data=typed)
    page = Page(answer.text)
    assert (answer.status_code, page.unclosed) == (400, [])
    assert why in page.words
    assert typed["note"].strip()[:5000] in answer.text
    assert f'value="{typed["tags"]}"' in answer.text
    assert not notes_file(run).exists()
    assert fields(client)["token"] in answer.text  # and can be sent again


def test_too_much_is_refused_before_it_is_read(client: TestClient, run: Path):
    assert client.post(FORM, data={**fields(client), "note": "x" * 200_000}).status_code == 413
    assert client.post(FORM, data={str(n): "" for n in range(60)}).status_code == 400
    assert client.post("/run/baseline/rollout/999/judgement", data=fields(client)).status_code == 404
    assert client.post("/run/nobody/rollout/1/judgement", data=fields(client)).status_code == 404


def test_a_folder_that_cannot_be_written_is_one_clear_line(client: TestClient, run: Path):
    notes_file(run).mkdir()
    answer = client.post(FORM, data={**fields(client), "note": "precious"})
    assert answer.status_code == 400
    assert "baseline.notes.jsonl" in Page(answer.text).words
    assert "precious" in answer.text


def test_hostile_words_of_people_are_only_words(client: TestClient, run: Path):
    save_judgement(run, make_judgement("task-009/0", HOSTILE[:60], tags=[HOSTILE[60:110]], note=HOSTILE))
    client.post(FORM, data={**fields(client), "note": HOSTILE, "tags": "<b>,'\""})
    for path in (PLACE, FORM, "/run/baseline/rollouts?q=judged:yes&cols=tag,note,by"):
        text = client.get(path).text
        page = Page(text)
        assert (page.unclosed, page.crossed) == ([], [])
        assert not any(tag in text for tag in ("<script>alert", "<img", "<svg onload", "<iframe", "<style>"))
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
        assert not ODD.search(re.sub(r"<textarea.*?</textarea>", "", text, flags=re.S))


def test_a_rollout_that_was_made_again_starts_unjudged(client: TestClient, run: Path):
    old = fields(client)
    client.post(FORM, data={**old, "rating": "5", "note": "of the old one"})
    rows: list[Any] = rows_of(run)
    rows[0]["meta"]["finished_at"] += 60
    write(run, rows)
    page = page_at(client, PLACE)
    assert "Of another rollout with this key" in page.words
    assert "another rollout is here now" in client.post(FORM, data={**old, "rating": "2"}).text
    assert 'value="5" checked' not in client.get(PLACE).text
    client.post(FORM, data={**fields(client), "rating": "1"})
    assert [each.rating for each in Judgements(notes_file(run)).refresh()] == [5, 1]


def test_a_key_that_no_form_can_hold_is_judged_all_the_same(tmp_path: Path):
    row = {**rows_of(make_run(tmp_path / "x.jsonl", tasks=1, repeats=1, failed=0))[0]}
    row["meta"]["key"] = f"{HOSTILE}/0"
    run = write(tmp_path / "baseline.jsonl", [row])
    with viewing(run, person="anna") as client:
        assert client.post(FORM, data={**fields(client), "rating": "3"}).status_code == 303
        assert "★★★" in page_at(client, PLACE).words
        assert not ODD.search(client.get(FORM).text)


def test_failed_attempts_can_be_judged(client: TestClient, run: Path):
    place = "/run/baseline/rollout/f1"
    assert client.post(f"{place}/judgement", data={**fields(client, place), "tags": "flaky"}).status_code == 303
    assert "flaky" in page_at(client, place).words
    assert said(run) == {("task-000/0", "anna"): (("flaky",), "", None)}


def test_a_static_copy_shows_judgements_and_has_no_form(tmp_path: Path):
    run = make_run(tmp_path / "baseline.jsonl", tasks=4, repeats=1, failed=0)
    save_judgement(run, make_judgement("task-000/0", "ben", rating=2, tags="odd", note="Look here."))
    with opened(run) as source:
        assert write_copy(source, tmp_path / "copy", where="tag:odd").rollouts == 1
    text = (tmp_path / "copy" / "rollout-1.html").read_text()
    assert "ben ★★ ☆☆☆ odd Look here." in Page(text).words
    assert "<textarea" not in text
    assert 'action="/' not in text


def test_other_lines_in_the_notes_file_are_named_on_the_page(client: TestClient, run: Path):
    client.post(FORM, data={**fields(client), "rating": "3"})
    with notes_file(run).open("a") as stream:
        stream.write("what is this\n")
    assert "baseline.notes.jsonl: line 2: not a judgement; kept and not read" in page_at(client, PLACE).words


def test_a_rerun_and_its_rollout_lead_to_both_side_by_side(run: Path):
    old = rows_of(run)[0]
    again = {**old, "reward": 0.25, "meta": {**old["meta"], "finished_at": old["meta"]["finished_at"] + 9}}
    again["meta"]["rerun_of"] = {"key": "task-009/0", "file": run.name, "finished_at": old["meta"]["finished_at"]}
    new = write(run.with_name("baseline.rerun.jsonl"), [again])
    with viewing(run, new) as client:
        there = "/pair?a=baseline%3A1&b=baseline.rerun%3A1"
        for place, words in {
            PLACE: "run again (reward 0.25)",
            "/run/baseline.rerun/rollout/1": "a rerun of baseline.jsonl",
        }.items():
            page = page_at(client, place)
            assert there in page.links()
            assert words in page.words
        assert "run again" not in page_at(client, "/run/baseline/rollout/2").words
        assert "0.25" in page_at(client, there).words
    with viewing(new) as client:  # the old one is not here
        assert "a rerun of" not in page_at(client, "/run/baseline.rerun/rollout/1").words
