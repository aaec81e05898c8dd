"""What constraints count: words, sentences, lines, paragraphs and letters of a text. All of it is linear."""

from __future__ import annotations

import re
import unicodedata

from velodrome.resources_servers.stated import INVISIBLE

WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*+")
SENTENCE_END = re.compile(r"[.!?…。！？]++[\"'”’)\]]*+(?=\s|$)")
BULLET = re.compile(r"^[ \t]*+[-*•][ \t]++\S", re.MULTILINE)
NUMBERED = re.compile(r"^[ \t]*+(\d{1,4})[.)][ \t]++\S", re.MULTILINE)
BINARY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd\ud800-\udfff]")
COMMENT_START, COMMENT_END = "<!--", "-->"

SCRIPTS = {
    "latin": "LATIN",
    "cyrillic": "CYRILLIC",
    "greek": "GREEK",
    "arabic": "ARABIC",
    "hebrew": "HEBREW",
    "devanagari": "DEVANAGARI",
    "hangul": "HANGUL",
    "han": "CJK",
    "kana": "HIRAGANA",
}


def visible(text: str) -> str:
    """What a reader sees of an answer: without reasoning, comments and invisible characters."""
    text = text.rpartition("</think>")[2]
    first, *others = text.split(COMMENT_START)
    shown = first + "".join(part.partition(COMMENT_END)[2] for part in others)
    return INVISIBLE.sub("", shown).strip()


def words_of(text: str) -> list[str]:
    """The words, as they are written."""
    return WORD.findall(text)


def folded(text: str) -> list[str]:
    """The words, without regard to case."""
    return [word.casefold() for word in WORD.findall(text)]


def sentences_of(text: str) -> list[str]:
    """The sentences: what ends with a full stop, a question or an exclamation mark, or with its paragraph."""
    parts = []
    for paragraph in paragraphs_of(text):
        start = 0
        for end in SENTENCE_END.finditer(paragraph):
            parts.append(paragraph[start : end.end()])
            start = end.end()
        parts.append(paragraph[start:])
    return [part.strip() for part in parts if WORD.search(part)]


def lines_of(text: str) -> list[str]:
    """The lines that are not empty."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def paragraphs_of(text: str) -> list[str]:
    """The parts between empty lines."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            parts[-1].append(line)
        elif parts[-1]:
            parts.append([])
    return ["\n".join(part) for part in parts if part]


def is_varied(words: list[str]) -> bool:
    """Whether a long text is more than the same few words."""
    return len(words) <= 30 or len(set(words)) >= max(12, len(words) // 12)


def in_script(text: str, script: str) -> bool:
    """Whether there are letters, and all are of one script."""
    letters = [char for char in text if char.isalpha()]
    name = SCRIPTS[script]
    known = {char: unicodedata.name(char, "").startswith(name) for char in set(letters)}
    return bool(letters) and all(known.values())


def palindromes_of(text: str) -> set[str]:
    """The different words of at least three letters that read the same backwards."""
    return {word for word in folded(text) if len(word) > 2 and word == word[::-1] and len(set(word)) > 1}
