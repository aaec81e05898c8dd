"""People judge rollouts on their pages: who may, what is kept, and what a page of another site cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import HOSTILE, rows_of, write
from tests.support.parsed_page import Page
from tests.support.viewing import ODD, harmless, page_at, viewing
from velodrome.index.judgements import Judgements, make_judgement, notes_file, save_judgement
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
    assert "anna ★★★★ ☆ good lucky a b" in page_at(client, PLACE).words
    assert 'value="4" checked' in client.get(PLACE).text
    assert page_at(client, "/run/baseline/rollouts?q=tag:lucky").words.count("finished 4 good, lucky task-009/0") == 1
    client.post(FORM, data=fields(client))  # everything emptied takes it back
    assert said(run) == {}
    before = client.get("/run/baseline/pulse").json()["version"]
    failed = "/run/baseline/rollout/f1"
    assert client.post(f"{failed}/judgement", data={**fields(client, failed), "tags": "flaky"}).status_code == 303
    assert "flaky" in page_at(client, failed).words
    assert said(run) == {("task-000/0", "anna"): (("flaky",), "", None)}
    assert client.get("/run/baseline/pulse").json()["version"] != before
    with notes_file(run).open("a") as stream:
        stream.write("what is this\n")
    assert "not a judgement; kept and not read" in page_at(client, PLACE).words


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
        assert said(run) == {("task-009/0", "anna"): ((), "", 4), ("task-009/0", "Zoë Ünal"): (("bad",), "", 1)}
        for by in (" ", "x" * 61):
            assert second.post("/person", data={**fields(second), "by": by}).status_code == 403


def test_only_the_viewers_own_pages_can_change_anything(client: TestClient, run: Path):
    form = {**fields(client), "rating": "1"}
    for headers, change, status in (
        ({}, {"token": "guess"}, 400),
        ({"origin": "https://evil.example"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({"origin": "http://127.0.0.1:81"}, {}, 403),
        ({"sec-fetch-site": "cross-site"}, {}, 400),
        ({"sec-fetch-site": "same-site"}, {}, 400),
        ({"sec-fetch-site": "none"}, {}, 400),
        ({"host": "evil.example"}, {}, 421),
        ({"content-type": "text/plain"}, {}, 415),
    ):
        answers = [client.post(path, data={**form, **change}, headers=headers) for path in (FORM, "/person")]
        assert [answer.status_code for answer in answers] == [status, 403 if status == 400 else status], headers
        assert "set-cookie" not in answers[1].headers
    assert client.get(FORM, params=form).status_code == 200
    assert client.get("/person", params=form).status_code == client.put(FORM, data=form).status_code == 405
    assert not notes_file(run).exists()
    own = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
    assert [client.post(path, data=form, headers=own).status_code for path in (FORM, "/person")] == [303, 303]
    assert len(said(run)) == 1


def test_a_token_does_not_let_other_sites_write(run: Path):
    with viewing(run, token="s3cret", host="127.0.0.1") as client:
        assert client.post(FORM, data={"rating": "1"}).status_code == 401
        client.post("/sign-in", data={"token": "s3cret", "to": "/"})
        values = {**fields(client), "rating": "1"}
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert client.post(FORM, data=values, headers=headers).status_code == 400
        assert not notes_file(run).exists()


def test_a_viewer_beyond_loopback_only_shows_unless_it_is_told_to_edit(run: Path):
    save_judgement(run, make_judgement("task-009/0", "ben", rating=2))
    with viewing(run, token="s3cret", host="10.0.0.5") as client:
        client.headers["authorization"] = "Bearer s3cret"
        assert ("ben ★★" in page_at(client, PLACE).words, "<textarea" in client.get(PLACE).text) == (True, False)
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


def test_what_was_typed_comes_back_with_the_reason(client: TestClient, run: Path):
    for change, why in (
        ({"rating": "²"}, "rating: '²'"),
        ({"tags": "x" * 61}, "tags:"),
        ({"note": "word " * 2100}, "note:"),
        ({"of": "another"}, "another rollout is here now"),
        ({"token": "old"}, "started again"),
    ):
        typed = {**fields(client), "note": "a long thought", "tags": "kept", **change}
        answer = client.post(FORM, data=typed)
        assert (answer.status_code, why in harmless(Page(answer.text)).words) == (400, True), why
        assert typed["note"].strip()[:5000] in answer.text
        assert f'value="{typed["tags"]}"' in answer.text
        assert fields(client)["token"] in answer.text  # and can be sent again
    assert not notes_file(run).exists()
    notes_file(run).mkdir()  # cannot be written
    answer = client.post(FORM, data={**fields(client), "note": "precious"})
    assert (answer.status_code, "precious" in answer.text) == (400, True)


def test_too_much_is_refused_before_it_is_read(client: TestClient, run: Path):
    assert client.post(FORM, data={**fields(client), "note": "x" * 200_000}).status_code == 413
    assert client.post(FORM, data={str(n): "" for n in range(60)}).status_code == 400
    assert client.post("/run/baseline/rollout/999/judgement", data=fields(client)).status_code == 404


def test_hostile_words_of_people_are_only_words(client: TestClient, run: Path):
    rows = rows_of(run)
    rows[0]["meta"]["key"] = f"{HOSTILE}/0"  # which no form can hold
    write(run, rows)
    save_judgement(run, make_judgement(f"{HOSTILE}/0", HOSTILE[:60], tags=[HOSTILE[60:110]], note=HOSTILE))
    client.post(FORM, data={**fields(client), "note": HOSTILE, "tags": "<b>,'\""})
    assert len(said(run)) == 2
    for path in (PLACE, FORM, "/run/baseline/rollouts?q=judged:yes&cols=tag,note,by"):
        text = client.get(path).text
        harmless(Page(text))
        assert not any(tag in text for tag in ("<script>alert", "<img", "<svg onload", "<iframe", "<style>"))
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


def test_a_static_copy_shows_judgements_and_has_no_form(run: Path, tmp_path: Path):
    save_judgement(run, make_judgement("task-009/0", "ben", rating=2, tags="odd", note="Look here."))
    with opened(run) as source:
        assert write_copy(source, tmp_path / "copy", where="tag:odd").rollouts == 1
    text = (tmp_path / "copy" / "rollout-1.html").read_text()
    assert "ben ★★ ☆☆☆ odd Look here." in Page(text).words
    assert "<textarea" not in text
    assert 'action="/' not in text
