"""The page of one rollout: question and answer, where its time went, its conversation, and the raw line.

The row may hold anything. Every text is bounded; a cut text is sent in full on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query, Sort
from velodrome.records.facts import RowFacts
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.timing.figures import duration
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.rollout_files import actions
from velodrome.viewer.pages.rollouts_page import parse_query
from velodrome.viewer.parts import waterfall
from velodrome.viewer.parts.cards import cards
from velodrome.viewer.parts.dialogue import ShownMessage, conversation, other_players, pretty
from velodrome.viewer.parts.episode import Episode, read_episode
from velodrome.viewer.parts.episode_part import episode_part
from velodrome.viewer.parts.judgement_part import judgement_part
from velodrome.viewer.parts.render import many, moment, size
from velodrome.viewer.parts.safe_text import folded, plain_line
from velodrome.viewer.parts.strip import strip
from velodrome.viewer.parts.talk import PER_PAGE, TalkView, hits, outline, page_of, shown_talk
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_MOST_ATTEMPTS = 100  # of a task, searched for its prompt
_MOST_FIND = 200  # characters
_RAW_HEAD, _RAW_TAIL = 60_000, 2_000


def rollout_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """The values of the template. A missing rollout is an `InputError`."""
    index, number = source.index(), address.number
    entry, row = index.entry(number), index.row(number)
    query, sort, _ = parse_query(index, address)
    before, after = _neighbours(index, query, sort, number)
    here: Json = {"q": address.q, "sort": str(sort)}
    failed = entry.state == "failed"
    meta = row if failed else _object(row.get("meta"))
    messages = conversation(row)
    episode = read_episode(row)
    family = index.repeats(entry.task, limit=_MOST_ATTEMPTS)
    if failed and not any(each.in_prompt for each in messages):
        messages = [*_prompt_of_another(index, family.entries if family else ()), *messages]
    raw = pretty(row)
    return {
        "entry": entry,
        "q": address.q,
        "sort": str(sort),
        "up": links.rollouts(**here) or links.run(),
        "previous": None if before is None else links.rollout(before, **here),
        "next": None if after is None else links.rollout(after, **here),
        "task_href": links.task(entry.task),
        "repeats": family.task.n + family.task.failed if family else 1,
        "about": _about(entry),
        "cut_off": _cut_off(row),
        "strip": strip(row, messages, failed=failed),
        "episode": episode_part(episode),
        "judgement": judgement_part(source, entry),
        "cards": cards(row, meta, failed=failed, elsewhere={"episode"} if isinstance(episode, Episode) else set()),
        "actions": actions(source, links, entry, row),
        **_talk(row, messages, _object(meta.get("timing")), partial(links.rollout, number, **here), address, links),
        "raw": folded(raw, over=_RAW_HEAD + _RAW_TAIL, head=_RAW_HEAD, tail=_RAW_TAIL),
        "raw_size": size(len(raw.encode("utf-8", "replace"))),
        "raw_open": address.show == "raw",
    }


def _talk(row: Json, messages: list[ShownMessage], timing: Json, href: Any, address: Address, links: Links) -> Json:
    """The conversation, its outline, and the waterfall that leads into it."""
    find = address.find.strip()[:_MOST_FIND]
    at = int(address.at) if address.at.isascii() and address.at.isdecimal() and len(address.at) < 6 else 0
    if find and not at:
        at = next((number for number, each in enumerate(messages, 1) if hits(each, find)), 1)
    view = TalkView(href, whole=links.static, show=address.show, raw=address.raw == "1", find=find, at=at)
    shown = address.show.removeprefix("m").partition(".")[0].partition("-")[0]
    if not at and address.show.startswith("m") and shown.isascii() and shown.isdecimal() and len(shown) < 6:
        view.at = int(shown)
    places = page_of(messages, view)
    talk = shown_talk(messages, places, view)
    lines = outline(messages, places, view)
    others = [
        {"name": name, "talk": shown_talk(own, range(min(len(own), PER_PAGE)), _of_player(view, at)), "count": len(own)}
        for at, (name, own) in enumerate(other_players(row).items(), 1)
    ]
    spans = waterfall.read_spans(timing.get("tree"))
    targets = waterfall.targets(spans, messages)
    hrefs = {span: f"{lines[place]['href']}{f'-{call}' if call else ''}" for span, (place, call) in targets.items()}
    label = "Where its time went"
    return {
        "talk": talk,
        "outline": lines,
        "pages": _pages(len(messages), places, href),
        "others": others,
        "whole": len(places) == len(messages) and not any(map(_is_cut, talk)),
        "find": find,
        "found": sum(line["hits"] for line in lines),
        "raw_all": view.raw,
        "raw_href": href(at=address.at, raw="" if view.raw else "1"),
        "waterfall": waterfall.draw(spans, timing.get("total_s"), label=label, hrefs=hrefs),
    }


def _is_cut(message: Json) -> bool:
    """Whether a text of a message is cut."""
    texts = [each for call in message["calls"] for each in (*(value for _, value in call["arguments"]), call["result"])]
    return any(each is not None and each["plain"].hidden for each in (message["body"], *texts))


def _of_player(view: TalkView, at: int) -> TalkView:
    """The view of another player's conversation."""
    return TalkView(view.href, whole=view.whole, show=view.show, raw=view.raw, find=view.find, prefix=f"p{at}-m")


def _pages(total: int, places: range, href: Any) -> list[tuple[str, str | None]]:
    """The parts of a long conversation. The shown part has no address."""
    if total <= len(places):
        return []
    starts = range(0, total, PER_PAGE)
    return [
        (f"{start + 1}–{min(start + PER_PAGE, total)}", None if start in places else href(at=str(start + 1)))
        for start in starts
    ]


def _neighbours(index: Index, query: Query, sort: Sort, number: int) -> tuple[int | None, int | None]:
    try:
        return index.neighbours(query, sort, number)
    except InputError:
        return index.neighbours(Query(), Sort(), number)


def _prompt_of_another(index: Index, family: Sequence[Entry]) -> list[ShownMessage]:
    """The prompt from a rollout of the same task, because the line of a failed attempt has none."""
    for entry in family:
        if entry.state != "failed":
            try:
                return [each for each in conversation(index.row(entry.number)) if each.in_prompt]
            except InputError:  # the file is being changed
                return []
    return []


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _about(entry: Entry) -> list[Markup]:
    about = [f"line {entry.line:,}"]
    if entry.agent:
        about.append(plain_line(entry.agent, 60))
    numbers = entry.numbers
    if "tokens" in numbers:
        about.append(many(numbers["tokens"], "token"))
    for name, value in (("turn", numbers.get("turns")), ("tool call", numbers.get("tools"))):
        if value:
            about.append(many(value, name))
    if "total_s" in numbers:
        about.append(duration(numbers["total_s"] * 1000))
    if "finished_at" in numbers:
        about.append(moment(numbers["finished_at"]))
    return [Markup.escape(each) for each in about]


def _cut_off(row: Json) -> str:
    facts = RowFacts(row)
    if facts.status != "incomplete":
        return ""
    what = "Stopped" if facts.stopped_by in BETWEEN_TURNS else "Cut off"
    return f"{what} before its end: {facts.stopped_by or 'no reason given'}"
