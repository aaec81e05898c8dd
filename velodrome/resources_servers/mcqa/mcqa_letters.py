"""The letter that an answer chooses, or none: a list of letters chooses nothing."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.stated import agreed, bare, boxed, labelled, need, readable, words

LONE = re.compile(
    r"(?:(?:i (?:choose|pick|select)|it is|it's)\s)?(?:(?:option|choice|answer|letter)\s?)?"
    r"[\[({]?\s?([A-Za-z])\s?[\])}]?(?:\sis (?:the )?(?:correct|right|best)(?: (?:answer|option|choice))?)?[.:]?",
    re.IGNORECASE,
)
LEADING = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice)\s?)?[\[(]?([A-Z])[\])]?(?:\s?[).:,;–—-]|\s)\s*(.*)", re.DOTALL)
STANDING = re.compile(r"(?<![\w'])([A-Z])(?![\w'])")
# "A" and "I" are words too, unless what follows joins them to another choice.
ARTICLE = re.compile(r"(?<![\w'])[AI](?=\s(?!(?:or|and|nor|but|is|if|to|as|also)\b)[a-z])")

EXTRACTIONS = ("boxed", "label", "letter", "text")


def options_of(task: Mapping[str, Any]) -> dict[str, str]:
    """The choices by letter. `options` is a list of texts, an object by letter, or a list of such objects."""
    given = need(task, "options", (list, dict), "the choices: a list of texts, or an object of texts by letter")
    if isinstance(given, list) and all(isinstance(each, str) for each in given):
        given = dict(zip(string.ascii_uppercase, given, strict=False)) if len(given) <= 26 else {}
    elif isinstance(given, list) and all(isinstance(each, dict) for each in given):
        given = {letter: text for each in given for letter, text in each.items()}
    if not isinstance(given, dict) or not 2 <= len(given) <= 26 or not all(map(is_choice, given.items())):
        raise TaskError('"options" must be 2 to 26 texts: a list, or an object of texts by letter A to Z')
    return {letter.upper(): text for letter, text in given.items()}


def is_choice(entry: tuple[Any, Any]) -> bool:
    """Whether it is a letter with a text."""
    letter, text = entry
    return (
        isinstance(letter, str)
        and len(letter) == 1
        and letter.upper() in string.ascii_uppercase
        and bool(isinstance(text, str) and text.strip())
    )


def choice(text: str, options: Mapping[str, str], extractions: Sequence[str], several: str = "refuse") -> str | None:
    """The letter of the first form that the answer has; a form that chooses nothing is not made up for by the next."""
    said = readable(text)
    for form in extractions:
        if form in ("boxed", "label"):
            contents = (boxed if form == "boxed" else labelled)(said)
            letters = [one_of(content, options) for content in map(bare, contents)]
            alone = [lone_letter(bare(line), options) for line in said.splitlines()] if letters else []
            letters = [*alone, *letters]  # a list that goes on below the answer is a list
        else:
            letters = by_line(said, options, lone=form == "letter")
        if letters:
            return agreed(letters, several)
    return None


def by_line(said: str, options: Mapping[str, str], *, lone: bool) -> list[str | None]:
    """The choices of lines that are nothing else, if the last line is one: a letter, or an option's text."""
    lines = [bare(line) for line in said.splitlines() if bare(line)]
    last = lone_letter(lines[-1], options) if lines and lone else None
    if last is not None:
        return [lone_letter(line, options) for line in lines]
    read = partial(one_of, options=options, strict=True) if lone else partial(by_text, options=options)
    return [read(line) for line in lines] if lines and read(lines[-1]) is not None else []


def lone_letter(content: str, options: Mapping[str, str]) -> str | None:
    """The letter of an option, if there is nothing else: `C`, `(c)`, `Option C.`"""
    lone = LONE.fullmatch(content)
    letter = lone.group(1).upper() if lone is not None else None
    return letter if letter in options else None


def one_of(content: str, options: Mapping[str, str], *, strict: bool = False) -> str | None:
    """The letter that one statement chooses: `C`, `(c)`, `C) Paris`, `C because …`, or the option's own text.

    When `strict`, it needs the letter, and nothing but the option's text may follow it.
    """
    found = lone_letter(content, options) or (None if strict else by_text(content, options))
    leading = LEADING.fullmatch(content)
    if found is not None or leading is None or leading.group(1) not in options:
        return found
    letter, rest = leading.groups()
    if by_text(rest, options) is not None:
        return letter if words(options[letter]) == words(rest) else None
    padded = f" {words(rest)} "
    if strict or any(f" {words(text)} " in padded for other, text in options.items() if other != letter):
        return None
    others = set(STANDING.findall(ARTICLE.sub("", rest))) - {letter}
    return None if others & set(options) else letter


def by_text(content: str, options: Mapping[str, str]) -> str | None:
    """The letter of the only option with this text."""
    wanted = words(content)
    letters = [letter for letter, text in options.items() if wanted and words(text) == wanted]
    return letters[0] if len(letters) == 1 else None
