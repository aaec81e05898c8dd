"""Count words, sentences, lines, paragraphs and letters of a text, all in linear time.

The kinds of constraints: the instruction to the model, and the check. The table has one entry per kind.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from velodrome.errors import TaskError
from velodrome.resources_servers.answers import INVISIBLE

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
    """The visible part of an answer: without reasoning, comments and invisible characters."""
    text = text.rpartition("</think>")[2]
    head, *parts = text.split(COMMENT_START)
    visible_text = head + "".join(part.partition(COMMENT_END)[2] for part in parts)
    return INVISIBLE.sub("", visible_text).strip()


def words_of(text: str) -> list[str]:
    """The words, as written."""
    return WORD.findall(text)


def folded(text: str) -> list[str]:
    """The words in lower case."""
    return [word.casefold() for word in WORD.findall(text)]


def sentences_of(text: str) -> list[str]:
    """The sentences: each ends with a full stop, a question or exclamation mark, or its paragraph."""
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
    """Whether a long text has more than a few different words."""
    return len(words) <= 30 or len(set(words)) >= max(12, len(words) // 12)


def in_script(text: str, script: str) -> bool:
    """Whether the text has letters, and all are of this script."""
    letters = [char for char in text if char.isalpha()]
    name = SCRIPTS[script]
    in_script_by_char = {char: unicodedata.name(char, "").startswith(name) for char in set(letters)}
    return bool(letters) and all(in_script_by_char.values())


def palindromes_of(text: str) -> set[str]:
    """The different words of at least three letters that read the same backwards."""
    return {word for word in folded(text) if len(word) > 2 and word == word[::-1] and len(set(word)) > 1}


Json = dict[str, Any]
Check = Callable[[str, Any], bool]

PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,60}\](?!\()")
HIGHLIGHT = re.compile(r"(?<![*\w])\*{1,2}(?![\s*])[^*\n]{1,200}(?<!\s)\*{1,2}(?![*\w])")
TITLE = re.compile(r"<<(?=[^<>\n]*\w)[^<>\n]{1,200}>>")
PARENTHESES = re.compile(r"\((?=[^()]*\w)[^()]{1,500}\)")
SEPARATOR = "******"
CAPITALS = re.compile(r"(?<![\w'])[^\W\d_]{2,}(?![\w'])")


@dataclass(frozen=True)
class Constraint:
    """One kind of constraint: its instruction, its check, and the names of its parameters."""

    instruction: str
    check: Check
    params: tuple[str, ...] = ()


def _count(parts: Callable[[str], Any], compare: Callable[[int, int], bool]) -> Check:
    return lambda text, p: compare(len(parts(text)), p["count"])


def least(value: int, count: int) -> bool:
    return value >= count


def most(value: int, count: int) -> bool:
    return value <= count


def exact(value: int, count: int) -> bool:
    return value == count


def times(text: str, word: str) -> int:
    """The number of times a word or a phrase occurs, as whole words."""
    phrase, words = folded(word), folded(text)
    if len(phrase) == 1:
        return words.count(phrase[0])
    return sum(words[at : at + len(phrase)] == phrase for at in range(len(words) - len(phrase) + 1))


def _capitals(text: str) -> list[str]:
    return [word for word in CAPITALS.findall(text) if word.isupper()]


def _numbered(text: str) -> list[str]:
    """The numbers of a list if they are 1, 2, 3, …; otherwise nothing."""
    numbers = [int(number) for number in NUMBERED.findall(text)]
    return [str(number) for number in numbers] if numbers == list(range(1, len(numbers) + 1)) else []


def _rows(text: str) -> list[str]:
    """The rows of a Markdown table below its heading; nothing if it is not one table."""
    rows = [line for line in lines_of(text) if line.startswith("|") and line.endswith("|") and line.count("|") > 2]
    is_table = len(rows) > 1 and not set(rows[1]) - set("|-: ") and len({row.count("|") for row in rows}) == 1
    return rows[2:] if is_table else []


def _blocks(text: str) -> list[str]:
    fences = [line for line in lines_of(text) if line.startswith("```")]
    return fences[::2] if len(fences) % 2 == 0 else []


def _is_json(text: str, _: Any) -> bool:
    body = text.removeprefix("```json").removeprefix("```").removesuffix("```") if text.startswith("```") else text
    try:
        return isinstance(json.loads(body), dict | list)
    except (ValueError, RecursionError):
        return False


def _in_order(text: str, p: Json) -> bool:
    words = folded(text)
    places = [words.index(word.casefold()) if word.casefold() in words else -1 for word in p["words"]]
    return places[0] >= 0 and all(before < after for before, after in pairwise(places))


def _two_answers(text: str, _: Any) -> bool:
    parts = [" ".join(folded(part)) for part in text.split(SEPARATOR)]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def _repeats(text: str, p: Json) -> bool:
    return text.startswith(str(p["text"])) and len(words_of(text[len(p["text"]) :])) >= 3


def _quoted(text: str, _: Any) -> bool:
    return len(text) > 2 and text[0] == text[-1] == '"' and bool(WORD.search(text))


def _postscript(text: str, _: Any) -> bool:
    last_line = lines_of(text)[-1:]
    return (
        bool(last_line)
        and last_line[0].startswith("P.S.")
        and bool(WORD.search(last_line[0][4:]))
        and len(lines_of(text)) > 1
    )


def _sections(text: str, p: Json) -> bool:
    heads = [line for line in lines_of(text) if re.fullmatch(rf"{re.escape(p['word'])} \d{{1,3}}:?", line)]
    expected_heads = [f"{p['word']} {at + 1}" for at in range(p["count"])]
    return [head.rstrip(":") for head in heads] == expected_heads


def _nth_paragraph(text: str, p: Json) -> bool:
    paragraphs = paragraphs_of(text)
    return 0 < p["count"] <= len(paragraphs) and folded(paragraphs[p["count"] - 1])[:1] == [p["word"].casefold()]


def _initials(text: str, p: Json) -> bool:
    initials = "".join((words_of(line) or ["?"])[0][0] for line in lines_of(text))
    return initials.casefold() == str(p["word"]).casefold()


def _sentences_begin(text: str, p: Json) -> bool:
    return all(words_of(sentence)[0][0].casefold() == p["letter"].casefold() for sentence in sentences_of(text))


def _letters(text: str, p: Json) -> int:
    return text.casefold().count(p["letter"].casefold())


def _distinct(text: str, _: Any) -> bool:
    words = folded(text)
    return len(words) >= 3 and Counter(words).most_common(1)[0][1] == 1


KINDS: Mapping[str, Constraint] = {
    "min_words": Constraint("Use at least {count} words.", _count(words_of, least), ("count",)),
    "max_words": Constraint("Use at most {count} words.", _count(words_of, most), ("count",)),
    "exact_words": Constraint("Use exactly {count} words.", _count(words_of, exact), ("count",)),
    "min_sentences": Constraint("Write at least {count} sentences.", _count(sentences_of, least), ("count",)),
    "max_sentences": Constraint("Write at most {count} sentences.", _count(sentences_of, most), ("count",)),
    "exact_sentences": Constraint("Write exactly {count} sentences.", _count(sentences_of, exact), ("count",)),
    "min_paragraphs": Constraint(
        "Write at least {count} paragraphs, with an empty line between them.", _count(paragraphs_of, least), ("count",)
    ),
    "exact_paragraphs": Constraint(
        "Write exactly {count} paragraphs, with an empty line between them.", _count(paragraphs_of, exact), ("count",)
    ),
    "exact_lines": Constraint("Write exactly {count} lines.", _count(lines_of, exact), ("count",)),
    "max_line_length": Constraint(
        "No line may be longer than {count} characters.",
        lambda text, p: all(len(line) <= p["count"] for line in text.splitlines()),
        ("count",),
    ),
    "max_word_length": Constraint(
        "Use no word of more than {count} letters.",
        lambda text, p: all(len(word) <= p["count"] for word in words_of(text)),
        ("count",),
    ),
    "include_words": Constraint(
        "Use each of these words: {words}.", lambda text, p: all(times(text, word) for word in p["words"]), ("words",)
    ),
    "exclude_words": Constraint(
        "Use none of these words: {words}.",
        lambda text, p: not any(times(text, word) for word in p["words"]),
        ("words",),
    ),
    "word_exactly": Constraint(
        'Use the word "{word}" exactly {count} times.',
        lambda text, p: times(text, p["word"]) == p["count"],
        ("word", "count"),
    ),
    "word_at_least": Constraint(
        'Use the word "{word}" at least {count} times.',
        lambda text, p: times(text, p["word"]) >= p["count"],
        ("word", "count"),
    ),
    "word_order": Constraint("Use these words, first used in this order: {words}.", _in_order, ("words",)),
    "distinct_words": Constraint("Use no word twice.", _distinct),
    "starts_with": Constraint(
        'Start with exactly: "{text}".', lambda text, p: text.startswith(p["text"]) and text != p["text"], ("text",)
    ),
    "ends_with": Constraint(
        'End with exactly: "{text}". Nothing may follow.',
        lambda text, p: text.endswith(p["text"]) and text != p["text"],
        ("text",),
    ),
    "ends_with_question": Constraint(
        "End with a question.", lambda text, _: text.endswith("?") and bool(WORD.search(text))
    ),
    "all_lowercase": Constraint(
        "Use lower-case letters only.", lambda text, _: text == text.lower() and text != text.upper()
    ),
    "all_uppercase": Constraint(
        "Use capital letters only.", lambda text, _: text == text.upper() and text != text.lower()
    ),
    "min_capital_words": Constraint(
        "Write at least {count} words entirely in capitals.", _count(_capitals, least), ("count",)
    ),
    "max_capital_words": Constraint(
        "Write at most {count} words entirely in capitals.", _count(_capitals, most), ("count",)
    ),
    "no_commas": Constraint("Use no commas.", lambda text, _: not set(text) & set(",，、،")),
    "no_digits": Constraint("Use no digits.", lambda text, _: not any(char.isdigit() for char in text)),
    "min_numbers": Constraint(
        "Mention at least {count} numbers, in digits.", _count(lambda text: re.findall(r"\d+", text), least), ("count",)
    ),
    "exclamations": Constraint(
        "Use exactly {count} exclamation marks.", lambda text, p: text.count("!") == p["count"], ("count",)
    ),
    "bullets": Constraint(
        'Use exactly {count} bullet points, lines that begin with "- ".', _count(BULLET.findall, exact), ("count",)
    ),
    "numbered_list": Constraint(
        'Give a numbered list of exactly {count} items, lines that begin with "1. " and so on.',
        _count(_numbered, exact),
        ("count",),
    ),
    "sections": Constraint(
        'Write {count} sections. Each begins with a line of its own: "{word} 1", "{word} 2" and so on.',
        _sections,
        ("word", "count"),
    ),
    "table_rows": Constraint(
        "Include one Markdown table with exactly {count} rows below its heading.", _count(_rows, exact), ("count",)
    ),
    "code_blocks": Constraint("Include exactly {count} fenced code blocks.", _count(_blocks, exact), ("count",)),
    "placeholders": Constraint(
        "Include at least {count} placeholders in square brackets, such as [name].",
        _count(PLACEHOLDER.findall, least),
        ("count",),
    ),
    "highlights": Constraint(
        "Highlight at least {count} passages with asterisks, such as *this one*.",
        _count(HIGHLIGHT.findall, least),
        ("count",),
    ),
    "parentheses": Constraint(
        "Use exactly {count} remarks in parentheses.", _count(PARENTHESES.findall, exact), ("count",)
    ),
    "title": Constraint(
        "Begin with a title in double angle brackets, such as <<my title>>.",
        lambda text, _: TITLE.match(text) is not None and len(TITLE.findall(text)) == 1,
    ),
    "quotation": Constraint("Put the whole answer between double quotation marks.", _quoted),
    "postscript": Constraint('End with a postscript on a line that begins with "P.S."', _postscript),
    "json_only": Constraint("Answer with JSON, an object or a list, and nothing else.", _is_json),
    "two_answers": Constraint(f"Give two different answers, separated by {SEPARATOR} and nothing else.", _two_answers),
    "repeat_first": Constraint('First repeat this sentence word for word, then answer: "{text}"', _repeats, ("text",)),
    "choice": Constraint(
        "Answer with exactly one of these and nothing else: {options}.",
        lambda text, p: text in p["options"],
        ("options",),
    ),
    "script": Constraint(
        "Write all letters in the {script} script.", lambda text, p: in_script(text, p["script"]), ("script",)
    ),
    "forbidden_letter": Constraint(
        'Do not use the letter "{letter}".', lambda text, p: not _letters(text, p), ("letter",)
    ),
    "min_letter": Constraint(
        'Use the letter "{letter}" at least {count} times.',
        lambda text, p: _letters(text, p) >= p["count"],
        ("letter", "count"),
    ),
    "max_letter": Constraint(
        'Use the letter "{letter}" at most {count} times.',
        lambda text, p: _letters(text, p) <= p["count"],
        ("letter", "count"),
    ),
    "sentence_letter": Constraint('Begin every sentence with the letter "{letter}".', _sentences_begin, ("letter",)),
    "acrostic": Constraint('Let the first letters of the lines spell "{word}".', _initials, ("word",)),
    "palindromes": Constraint(
        "Use at least {count} different palindromes of three or more letters.",
        _count(palindromes_of, least),
        ("count",),
    ),
    "nth_paragraph": Constraint(
        'Paragraphs are separated by empty lines. Begin paragraph {count} with the word "{word}".',
        _nth_paragraph,
        ("count", "word"),
    ),
}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= 1000


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 50 and all(map(_is_text, value))


PARAMS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "count": (lambda value: type(value) is int and 0 <= value <= 5000, "a whole number up to 5000"),
    "word": (lambda value: _is_text(value) and bool(WORD.search(value)), "a word"),
    "words": (lambda value: _is_list(value) and all(map(WORD.search, value)), "a list of words"),
    "text": (_is_text, "a text"),
    "letter": (lambda value: isinstance(value, str) and len(value) == 1 and value.isalpha(), "one letter"),
    "options": (_is_list, "a list of texts"),
    "script": (lambda value: value in SCRIPTS, f"one of {', '.join(SCRIPTS)}"),
}


def constraints_of(task: Mapping[str, Any]) -> list[Json]:
    """The constraints of a task, checked: known kinds with all their parameters."""
    constraints = task.get("constraints")
    if not isinstance(constraints, list) or not constraints:
        raise TaskError('no "constraints" in the task; it is a list such as [{"kind": "max_words", "count": 50}]')
    for at, each in enumerate(constraints):
        kind = each.get("kind") if isinstance(each, dict) else None
        if not isinstance(kind, str) or kind not in KINDS:
            raise TaskError(f'"constraints"[{at}]: {str(kind)[:80]!r} is not a kind of constraint')
        for name in KINDS[kind].params:
            fits, description = PARAMS[name]
            if not fits(each.get(name)):
                raise TaskError(
                    f'"constraints"[{at}] {kind}: "{name}" must be {description}, not {str(each.get(name))[:80]!r}'
                )
        extra = set(each) - {"kind", *KINDS[kind].params}
        if extra:
            raise TaskError(f'"constraints"[{at}] {kind}: it has no "{min(extra)[:80]}"')
    return constraints


def described(constraint: Json) -> str:
    """The instruction of a constraint."""
    texts = {name: ", ".join(value) if isinstance(value, list) else value for name, value in constraint.items()}
    return KINDS[constraint["kind"]].instruction.format(**texts)


def followed(text: str, constraint: Json) -> bool:
    """Whether a text keeps a constraint."""
    return KINDS[constraint["kind"]].check(text, constraint)
