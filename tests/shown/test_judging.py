"""People judge rollouts in real browsers: by keyboard, two at once, without scripts; another site cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from looking import PATIENCE_S, EmptyPage, Looking, look_at, serious
from made_runs import make_run

from velodrome.records.people.judgements import Judgements, notes_file

pytestmark = pytest.mark.slow

PLACE = "/run/baseline/rollout/1"
KEY = "task-009/0"
ATTACK = """
async (url) => {
  const body = new URLSearchParams({rating: '1', by: 'eve', note: 'from elsewhere', of: '1', token: 'guess'});
  for (const mode of ['no-cors', 'cors'])
    try { await fetch(url, {method: 'POST', mode, body, credentials: 'include'}); } catch (error) {}
  navigator.sendBeacon(url, body);
  const frame = document.createElement('iframe'), form = document.createElement('form');
  Object.assign(frame, {name: 'there'});
  Object.assign(form, {method: 'POST', action: url, target: 'there'});
  for (const [name, value] of body) form.append(Object.assign(document.createElement('input'), {name, value}));
  const loaded = new Promise(done => frame.onload = done);
  document.body.append(frame, form);
  form.submit();
  await loaded;
}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("judged") / "baseline.jsonl")


@pytest.fixture(scope="module")
def look(chromium: Any, run: Path) -> Iterator[Looking]:
    with look_at(chromium, run, "--as", "anna") as look:  # type: ignore[arg-type]  # a flag is a word like a path
        yield look


@pytest.fixture(autouse=True)
def unjudged(run: Path) -> None:
    notes_file(run).unlink(missing_ok=True)


def other_browser(look: Looking, **options: Any) -> Any:
    """A page of a browser with its own cookies."""
    page = look.chromium.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    page.on("console", lambda message: look.said.append(message.text))
    page.on("pageerror", lambda error: look.said.append(str(error)))
    return page


def said(run: Path, key: str = KEY) -> dict[str, tuple[tuple[str, ...], str, int | None]]:
    return {each.by: (each.tags, each.note, each.rating) for each in Judgements(notes_file(run)).refresh().of(key)}


def keys(page: Any, *pressed: str) -> None:
    for key in pressed:
        page.keyboard.press(key)


def settled(page: Any, words: str) -> None:
    page.locator("[data-said]", has_text=words).wait_for()


def test_one_rollout_after_the_other_is_judged_by_keyboard_alone(look: Looking, run: Path):
    look.goto(PLACE)
    page = look.page
    keys(page, "4")
    page.get_by_label("4 of 5").wait_for()
    assert said(run) == {"anna": ((), "", 4)}
    keys(page, "e")
    page.keyboard.type("lucky goo")
    keys(page, "Tab")
    page.keyboard.type("It guessed,")
    keys(page, "Shift+Enter")
    page.keyboard.type("and was right.")
    keys(page, "Enter")
    settled(page, "and was right.")
    assert said(run) == {"anna": (("lucky", "goo"), "It guessed,\nand was right.", 4)}
    keys(page, "g", "x", "0")
    page.get_by_label("4 of 5").wait_for(state="detached")
    assert said(run) == {"anna": (("lucky", "goo", "bad"), "It guessed,\nand was right.", None)}
    keys(page, "n")
    look.at("/rollout/2$")
    keys(page, "e")
    page.keyboard.type("luc")
    options = page.eval_on_selector_all("#judge-known option", "all => all.map(each => each.value)")
    assert options == ["bad", "goo", "lucky"]
    page.keyboard.type("ky, b")
    options = page.eval_on_selector_all("#judge-known option", "all => all.map(each => each.value)")
    assert options == ["lucky, bad", "lucky, goo"]
    keys(page, "Enter")
    settled(page, "lucky")
    keys(page, "u")
    look.at("/rollouts$")
    look.goto("/run/baseline/rollouts?q=tag:lucky")
    look.sees("2 rollouts match")
    look.goto(PLACE)
    keys(page, "?")
    helped = page.inner_text("#help")
    assert "rate from 1 to 5" in helped
    assert "judge: tags and a note" in helped
    assert (look.said, look.outside) == ([], [])


def test_two_people_judge_at_once_and_see_each_other(look: Looking, run: Path):
    look.goto(PLACE)
    ben, again = other_browser(look), look.open("light", "desktop")
    ben.goto(look.url + PLACE)
    keys(ben, "e", "Tab", "Tab", "Tab")
    ben.locator("#judge-by").fill("ben")
    keys(ben, "Enter")
    ben.locator("[data-form] [name=by][value=ben]").wait_for(state="attached")
    again.goto(look.url + PLACE)  # anna's second window
    keys(look.page, "5")
    keys(ben, "2", "e")
    ben.keyboard.type("wrong")
    keys(ben, "Enter")
    settled(ben, "wrong")
    settled(look.page, "wrong")  # without a reload
    settled(ben, "anna")
    assert said(run) == {"anna": ((), "", 5), "ben": (("wrong",), "", 2)}
    again.locator("[data-form] [name=rating][value='5']:checked").wait_for(state="attached")
    keys(again, "3")
    look.page.locator("[data-form] [name=rating][value='3']:checked").wait_for(state="attached")
    assert said(run) == {"anna": ((), "", 3), "ben": (("wrong",), "", 2)}
    ben.context.close()
    again.close()
    assert look.said == []


def test_what_cannot_be_saved_stays_in_the_field(look: Looking, run: Path):
    notes_file(run).mkdir()
    try:
        look.goto(PLACE)
        page = look.page
        keys(page, "e", "Tab")
        page.keyboard.type("a precious thought")
        keys(page, "Enter")
        page.locator("[data-error]", has_text="baseline.notes.jsonl: not saved").wait_for()
        assert page.input_value("#judge-note") == "a precious thought"
    finally:
        notes_file(run).rmdir()
    page.get_by_role("button", name="Save").click()
    settled(page, "a precious thought")
    assert page.locator("[data-error]").is_hidden()
    look.said.clear()  # the browser notes the status of the refusal


def test_without_scripts_it_is_an_ordinary_form(look: Looking, run: Path):
    page = other_browser(look, java_script_enabled=False)
    page.goto(f"{look.url}{PLACE}?q=reward<2")
    page.get_by_text("Judge this rollout").click()
    page.get_by_label("4", exact=True).check()
    page.get_by_label("Tags").fill("plain")
    page.get_by_label("Note").fill("no script")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/rollout/1?q=reward%3C2#judgement")
    assert said(run) == {"anna": (("plain",), "no script", 4)}
    page.get_by_text("Change your judgement").click()
    assert page.get_by_label("Tags").input_value() == "plain"
    page.get_by_label("Note").fill("")
    page.get_by_label("Tags").fill("x" * 61)
    page.get_by_role("button", name="Save").click()
    page.get_by_text("longer than 60 characters").wait_for()
    assert page.get_by_label("Tags").input_value() == "x" * 61
    page.context.close()


def test_another_site_cannot_judge(look: Looking, run: Path):
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        page = other_browser(look)
        page.goto(f"{look.url}{PLACE}")  # which has its cookies
        for host in ("127.0.0.1", "evil.example"):
            page.goto(f"http://{host}:{site.server_port}/")
            page.evaluate(ATTACK, f"{look.url}{PLACE}/judgement")
            page.evaluate(ATTACK, f"{look.url}/person")
        page.context.close()
        site.shutdown()
        thread.join()
    assert not notes_file(run).exists()
    look.said.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_panel_is_accessible_and_fits(look: Looking, run: Path, scheme: str):
    for width in (1440, 1024, 390):
        page = other_browser(look, viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(look.url + PLACE)
        keys(page, "3")
        page.get_by_label("3 of 5").wait_for()
        keys(page, "e")
        page.keyboard.type("averyveryverylongtag" * 3)
        assert (serious(page), page.evaluate("document.documentElement.scrollWidth")) == ([], width)
        keys(page, "Enter")
        settled(page, "averyvery")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        page.context.close()
