"""The messages of a rollout for its page: numbered, drawn and raw, long ones folded; and the outline of all.

Every text is bounded; a cut text is sent in full on request. `viewer/content/` draws the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from velodrome.viewer.content.attached import Attachment
from velodrome.viewer.content.highlighting import code
from velodrome.viewer.content.markdown_text import rich_text
from velodrome.viewer.content.tool_output import tool_result
from velodrome.viewer.parts.dialogue import Argument, Call, ShownMessage
from velodrome.viewer.parts.render import many, size
from velodrome.viewer.parts.safe_text import FOLD_OVER, folded, plain_line, visible

Json = dict[str, Any]
Draw = Callable[[str], Markup | None]

PER_PAGE = 100  # messages
_ROOM = 1_500_000  # characters of text on a page; above this, long texts are cut earlier
_LONGEST = 60_000  # characters of one text on a smaller page
_MOST_DRAWN = 250_000  # characters on a page; the rest is drawn on request
_MOST_PICTURES = 8_000_000  # bytes on a page
_FOLDED_LINES, _FOLDED_CHARACTERS = 14, 1_200  # of a result, an argument, a thought, a system prompt
_ALWAYS_DRAWN = 1_000
_PREVIEW_LINES, _PREVIEW_CHARACTERS = 4, 320
_SPOKEN = ("user", "assistant", "refusal")  # never folded
_LABELS = {"other": "Something else", "reasoning": "Reasoning", "tool": "Tool result"}
_LANGUAGES = {
    **dict.fromkeys(("code", "python", "program", "source", "script"), "python"),
    **dict.fromkeys(("sql", "query"), "sql"),
    **dict.fromkeys(("command", "cmd", "bash", "shell"), "bash"),
}


@dataclass(slots=True)
class TalkView:
    """The view of a conversation. `href` makes addresses of this page; `prefix` begins the ids of its messages."""

    href: Callable[..., str | None]
    whole: bool = False
    show: str = ""
    raw: bool = False
    find: str = ""
    at: int = 1
    prefix: str = "m"
    longest: int = _LONGEST
    drawable: int = _MOST_DRAWN
    pictures: int = _MOST_PICTURES


def page_of(messages: Sequence[ShownMessage], view: TalkView) -> range:
    """The places of the messages on the page: all of a short conversation, else up to a hundred."""
    if view.whole or len(messages) <= PER_PAGE:
        return range(len(messages))
    start = (min(max(view.at, 1), len(messages)) - 1) // PER_PAGE * PER_PAGE
    return range(start, min(start + PER_PAGE, len(messages)))


def shown_talk(messages: Sequence[ShownMessage], places: range, view: TalkView) -> list[Json]:
    """The messages of a page for the template."""
    total = sum(len(text) for place in places for text in texts_of(messages[place]))
    view.longest = _LONGEST if total <= _ROOM else FOLD_OVER
    return [_shown(place + 1, messages[place], view) for place in places]


def outline(messages: Sequence[ShownMessage], places: range, view: TalkView) -> list[Json]:
    """A line for every message of the conversation. `hits`: how often the search text occurs in it."""
    lines = []
    for number, message in enumerate(messages, 1):
        is_on_page = number - 1 in places
        words = message.text or "; ".join(argument.text for call in message.calls for argument in call.arguments)
        lines.append(
            {
                "number": number,
                "href": f"#{view.prefix}{number}" if is_on_page else view.href(at=str(number)),
                "role": "call" if message.calls else message.role,
                "title": plain_line(_title(message), 40),
                "words": plain_line(words, 60),
                "size": size(sum(len(text) for text in texts_of(message))),
                "failed": message.role == "refusal" or any(call.failed for call in message.calls),
                "hits": hits(message, view.find),
            }
        )
    return lines


def hits(message: ShownMessage, find: str) -> int:
    """How often a text occurs in a message, ignoring case."""
    return sum(text.lower().count(find.lower()) for text in texts_of(message)) if find else 0


def texts_of(message: ShownMessage) -> Iterator[str]:
    """Every text of a message."""
    yield message.text
    for call in message.calls:
        yield call.name
        for argument in call.arguments:
            yield from (argument.name, argument.text)
        yield call.result or ""


def _title(message: ShownMessage) -> str:
    if message.calls:
        return ", ".join(dict.fromkeys(call.name for call in message.calls))
    tool_name = message.role == "tool" and message.name
    return tool_name or _LABELS.get(message.role, message.role.capitalize())


def _shown(number: int, message: ShownMessage, view: TalkView) -> Json:
    name = f"{view.prefix}{number}"
    label = _LABELS.get(message.role, message.role.capitalize())
    if message.calls:
        label = "Tool call" if len(message.calls) == 1 else f"{len(message.calls)} tool calls, side by side"
    draw = tool_result if message.role in ("tool", "other") else rich_text
    body = None
    if message.text or message.attached or not message.calls:
        body = _body(name, message.text, view, draw, message.attached, foldable=message.role not in _SPOKEN)
        body["code"] = message.role in ("tool", "other")
    calls = [_shown_call(f"{name}-{at}", call, view) for at, call in enumerate(message.calls, 1)]
    inner = [each for call in calls for each in (*(own for _, own in call["arguments"]), call["result"])]
    return {
        "id": name,
        "number": number,
        "role": message.role,
        "label": label,
        "note": Markup(" · ").join(filter(None, (plain_line(message.name, 60), message.tokens))),
        "body": body,
        "calls": calls,
        "is_drawn": any(each is not None and each["drawn"] is not None for each in (body, *inner)),
    }


def _shown_call(name: str, call: Call, view: TalkView) -> Json:
    arguments = [
        (each.name, _body(f"{name}.a{at}", each.text, view, _drawing(call, each)))
        for at, each in enumerate(call.arguments)
    ]
    result = None
    if call.result is not None:
        result = _body(f"{name}.r", call.result, view, tool_result, call.attached)
    return {
        "id": name,
        "name": call.name,
        "parsed": call.parsed,
        "failed": call.failed,
        "arguments": arguments,
        "result": result,
    }


def _drawing(call: Call, argument: Argument) -> Draw:
    """The function that draws an argument: as code if its name suggests a language, else like a result."""
    language = _LANGUAGES.get(argument.name.lower())
    if language and "\n" in argument.text:
        return lambda text: code(text, language)
    return tool_result


def _body(
    part: str,
    text: str,
    view: TalkView,
    draw: Draw,
    attached: Sequence[Attachment] = (),
    *,
    foldable: bool = True,
) -> Json:
    """One text for the template. `view.show` is the id of the text to show in full."""
    is_whole = view.whole or view.show == part or bool(view.find and view.find.lower() in text.lower())
    shown = folded(text, whole=is_whole, over=view.longest)
    drawn, undrawn = None, None
    if not (view.raw or shown.hidden):
        view.drawable -= len(text)
        if is_whole or view.drawable >= 0 or len(text) < _ALWAYS_DRAWN:
            drawn = draw(text)
        else:
            undrawn = view.href(show=part)
    href = view.href(show=part) if shown.hidden and view.show != part else None
    fold = _fold(text) if foldable else None
    return {
        "plain": shown,
        "drawn": drawn,
        "href": href,
        "undrawn": undrawn,
        "fold": fold,
        "open": view.show == part,
        "code": True,
        "attached": [_with_picture_limit(each, view) for each in attached],
        "is_empty": not text and bool(attached),
    }


def _fold(text: str) -> Json | None:
    """The preview of a long text while it is folded, and the size of the rest."""
    lines = text.count("\n") + 1
    if lines <= _FOLDED_LINES and len(text) <= _FOLDED_CHARACTERS:
        return None
    preview = "\n".join(text[:_PREVIEW_CHARACTERS].split("\n")[:_PREVIEW_LINES]).strip("\n")
    hidden = lines - preview.count("\n") - 1
    amount = size(len(text.encode("utf-8", "replace")))
    return {"preview": visible(preview), "more": f"+ {many(hidden, 'line')}, {amount}" if hidden else f"+ {amount}"}


def _with_picture_limit(attached: Attachment, view: TalkView) -> Attachment:
    """The attachment, without its picture if the page has too many."""
    if attached.src is None:
        return attached
    view.pictures -= len(attached.src)
    return (
        attached if view.pictures >= 0 else replace(attached, src=None, note="not drawn: this page has many pictures")
    )
