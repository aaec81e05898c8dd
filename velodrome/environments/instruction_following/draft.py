"""Write a text that keeps any sensible combination of constraints: the reference answers of tasks.

A draft is paragraphs of sentences of words, blocks of lines below them, and wrappings around it all. A constraint is
kept by its step, which changes the draft as little as it can; steps are repeated until every constraint is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from velodrome.environments.instruction_following.kinds import (
    SEPARATOR,
    folded,
    followed,
    lines_of,
    palindromes_of,
    paragraphs_of,
    sentences_of,
    times,
    words_of,
)

ENGLISH = """
 amber bright calm early field garden harbour island joyful kind lantern morning narrow open path quiet river silver
 tower under valley warm yellow zest apple bird cloud dark evening forest gentle hill ink jump keep light moon north old
 pond quick rain stone tall uncle vivid wind young zinc ant book cold dust east fish gold hand ice jolly king long mist
 nut owl pink quilt road sand town urn vast wood yard zoo ask big cat dog egg far gift hot ivy jam kit low map now oak
 pin run sun tin up van wax yes zip album brown coast drift echo flute grain house idea juice knot leaf metal night
 ocean paint quest roof storm trail unit voice water yarn zone about build chart dance earth frost glass heart inner
 judge knee lemon music noble orbit plant queue round shore train upper visit world youth zebra across bridge candle
 distant elder fabric golden hidden ivory jacket kettle ladder marble needle orange pillow quartz ribbon saddle timber
 useful velvet walnut yonder zigzag after below carry dream every fresh grand happy image joint known large mild never
 often proud
"""
OTHER_SCRIPTS = {
    "cyrillic": "утро река поле лес ветер дом свет гора море снег птица сад луна дорога камень зима лето город ночь",
    "greek": "ήλιος θάλασσα βουνό δρόμος σπίτι νερό φως νύχτα πουλί δέντρο ουρανός πέτρα άνεμος κήπος πόλη",
    "arabic": "شمس بحر جبل طريق بيت ماء نور ليل طائر شجرة سماء حجر ريح حديقة مدينة",
    "hebrew": "שמש ים הר דרך בית מים אור לילה ציפור עץ שמים אבן רוח גן עיר",
    "devanagari": "सूरज पानी घर रात पेड़ आकाश नदी शहर फूल गाँव",
    "hangul": "해 바다 산 길 집 물 빛 밤 새 나무 하늘 돌 바람 정원 도시",
    "han": "太阳 大海 高山 道路 房子 河水 月光 夜晚 小鸟 树木 天空 石头 清风 花园 城市",
    "kana": "そら うみ やま みち いえ みず ひかり よる とり はな かぜ まち",
}
PALINDROMES = "level noon radar civic kayak madam refer rotor stats tenet eye pop wow mum dad"


Json = dict[str, Any]
Step = Callable[["Draft", Json], None]

ROUNDS = 8
MOST = 6000


class CannotWrite(Exception):
    """There are no words left that the constraints allow."""


@dataclass
class Draft:
    """A text in the making."""

    constraints: list[Json]
    paragraphs: list[list[list[str]]] = field(default_factory=list)  # the last word of a sentence is its mark
    blocks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._vocabulary = self._words()
        self.new_paragraph()

    @property
    def text(self) -> str:
        """The whole of it, as it would be answered."""
        texts = [" ".join(map(_sentence, paragraph)) for paragraph in self.paragraphs]
        text = "\n".join([*filter(None, ["\n\n".join(filter(None, texts))]), *self.blocks])
        for kind, wrap in WRAPS.items():
            for constraint in self.of(kind):
                text = wrap(text, constraint)
        return text

    def of(self, *kinds: str) -> list[Json]:
        """The constraints of these kinds."""
        return [each for each in self.constraints if each["kind"] in kinds]

    def word(self, holds: str = "", begins: str = "") -> str:
        """The next word that the constraints allow; it holds or begins with a letter, if that is asked."""
        used = set(folded(self.text)) if self.of("distinct_words") else set()
        for _ in range(len(self.candidates)):
            word = next(self._vocabulary)
            if holds in word and word.startswith(begins) and word not in used:
                return word
        raise CannotWrite

    def new_sentence(self, length: int = 3) -> None:
        """Add one to the last paragraph."""
        if not self.paragraphs:
            raise CannotWrite
        begins = next((each["letter"].lower() for each in self.of("sentence_letter")), "")
        self.paragraphs[-1].append([self.word(begins=begins), *(self.word() for _ in range(length - 1)), "."])

    def new_paragraph(self) -> None:
        """Add one with one sentence."""
        self.paragraphs.append([])
        self.new_sentence()

    def insert(self, word: str) -> None:
        """Add a word to the shortest sentence."""
        sentences = [each for paragraph in self.paragraphs for each in paragraph]
        if not sentences:
            self.blocks.append(word)
        else:
            min(sentences, key=len).insert(-1, word)

    def remove_where(self, test: Callable[[str], bool], most: int = MOST) -> None:
        """Remove words, from the end on; a sentence without words goes too."""
        for paragraph in reversed(self.paragraphs):
            for sentence in reversed(paragraph):
                for at in range(len(sentence) - 2, -1, -1):
                    if most and test(sentence[at]):
                        del sentence[at]
                        most -= 1
            paragraph[:] = [sentence for sentence in paragraph if len(sentence) > 1]
        self.paragraphs = [paragraph for paragraph in self.paragraphs if paragraph] or [[]]

    def _words(self) -> Iterator[str]:
        script = next((each["script"] for each in self.of("script")), "latin")
        source = OTHER_SCRIPTS[script].split() if script in OTHER_SCRIPTS else ENGLISH.split()
        letters = {each["letter"].casefold() for each in self.of("forbidden_letter", "max_letter")}
        avoided = {
            word
            for each in self.of("exclude_words", "include_words", "word_order")
            for word in folded(" ".join(each["words"]))
        }
        avoided |= {word for each in self.of("word_exactly", "word_at_least") for word in folded(each["word"])}
        longest = min((each["count"] for each in self.of("max_word_length")), default=100)
        self.candidates = [
            word for word in source if not letters & set(word) and word not in avoided and len(word) <= longest
        ]
        return _endless(self.candidates)


def _endless(words: list[str]) -> Iterator[str]:
    while words:
        yield from words
    raise CannotWrite


def _sentence(words: list[str]) -> str:
    if len(words) < 2:
        return ""
    text = " ".join(words[:-1]) + words[-1]
    return text[0].upper() + text[1:]


def _fit(size: Callable[[str], int], more: Callable[[Draft], None], less: Callable[[Draft], None], kind: str) -> Step:
    """A step to a number: add while there is too little, remove while there is too much."""

    def step(draft: Draft, p: Json) -> None:
        now, before = size(draft.text), -1
        while now != before and ((now < p["count"] and kind != "max") or (now > p["count"] and kind != "min")):
            change = more if now < p["count"] else less
            change(draft)
            now, before = size(draft.text), now

    return step


def _drop_sentence(draft: Draft) -> None:
    joined = [sentence for paragraph in draft.paragraphs for sentence in paragraph]
    if len(joined) < 2:
        raise CannotWrite
    last = max((paragraph for paragraph in draft.paragraphs), key=len)
    taken = last.pop()
    if not last:
        draft.paragraphs.remove(last)
    draft.paragraphs[0][0][-1:-1] = taken[:-1]


def _join_paragraphs(draft: Draft) -> None:
    if len(draft.paragraphs) < 2:
        raise CannotWrite
    draft.paragraphs[-2].extend(draft.paragraphs.pop())


def _lines(count: Callable[[int], str]) -> Step:
    """A step that puts so many lines into the blocks, each made by its number."""

    def step(draft: Draft, p: Json) -> None:
        draft.blocks.extend(count(at + 1).replace("?", draft.word()) for at in range(p["count"]))

    return step


def _include(draft: Draft, p: Json) -> None:
    for word in p["words"]:
        if not times(draft.text, word):
            draft.insert(word)


def _exclude(draft: Draft, p: Json) -> None:
    unwanted = {word.casefold() for word in p["words"]}
    draft.remove_where(lambda word: word.casefold() in unwanted)


def _often(draft: Draft, p: Json) -> None:
    now = times(draft.text, p["word"])
    for _ in range(p["count"] - now):
        draft.insert(p["word"])
    if p["kind"] == "word_exactly" and now > p["count"]:
        draft.remove_where(lambda word: word.casefold() == p["word"].casefold(), now - p["count"])


def _order(draft: Draft, p: Json) -> None:
    _exclude(draft, p)
    draft.paragraphs[-1].append([*p["words"], "."])


def _letter(draft: Draft, p: Json) -> None:
    for _ in range(p["count"] - draft.text.casefold().count(p["letter"].casefold())):
        draft.insert(draft.word(holds=p["letter"].casefold()))


def _few_letters(draft: Draft, p: Json) -> None:
    draft.remove_where(lambda word: p["letter"].casefold() in word.casefold())


def _short_words(draft: Draft, p: Json) -> None:
    draft.remove_where(lambda word: len(word) > p["count"])


def _capitals(draft: Draft, p: Json) -> None:
    for _ in range(p["count"]):
        draft.insert(draft.word().upper().ljust(2, "O"))


def _palindromes(draft: Draft, p: Json) -> None:
    for word in PALINDROMES.split():
        if len(palindromes_of(draft.text)) < p["count"]:
            draft.insert(word)


def _numbers(draft: Draft, p: Json) -> None:
    for at in range(p["count"]):
        draft.insert(str(at + 2))


def _exclaim(draft: Draft, p: Json) -> None:
    for _ in range(p["count"] - draft.text.count("!")):
        draft.new_sentence()
        draft.paragraphs[-1][-1][-1] = "!"


def _sections(draft: Draft, p: Json) -> None:
    for at in range(p["count"]):
        draft.blocks += [f"{p['word']} {at + 1}", " ".join(draft.word() for _ in range(4))]


def _table(draft: Draft, p: Json) -> None:
    rows = [f"| {draft.word()} | {draft.word()} |" for _ in range(p["count"] + 1)]
    draft.blocks += [rows[0], "| --- | --- |", *rows[1:]]


def _acrostic(draft: Draft, p: Json) -> None:
    draft.paragraphs = []
    draft.blocks = [f"{draft.word(begins=char.casefold())} {draft.word()}" for char in p["word"]]


def _nth(draft: Draft, p: Json) -> None:
    for _ in range(p["count"] - len(draft.paragraphs)):
        draft.new_paragraph()
    draft.paragraphs[p["count"] - 1][0].insert(0, p["word"])


def _all_distinct(draft: Draft, _: Json) -> None:
    seen: set[str] = set()

    def again(word: str) -> bool:
        repeated = word.casefold() in seen
        seen.add(word.casefold())
        return repeated

    draft.remove_where(again)


def _again_in_script(draft: Draft, _: Json) -> None:
    draft.paragraphs = []
    draft.new_paragraph()


STEPS: Mapping[str, Step] = {
    "script": _again_in_script,
    "acrostic": _acrostic,
    "exact_paragraphs": _fit(lambda text: len(paragraphs_of(text)), Draft.new_paragraph, _join_paragraphs, "exact"),
    "min_paragraphs": _fit(lambda text: len(paragraphs_of(text)), Draft.new_paragraph, _join_paragraphs, "min"),
    "nth_paragraph": _nth,
    "sections": _sections,
    "bullets": _lines(lambda at: "- ? way"),
    "numbered_list": _lines(lambda at: f"{at}. ? way"),
    "table_rows": _table,
    "code_blocks": _lines(lambda at: f"```\nx = {at}\n```"),
    "placeholders": _lines(lambda at: "[?]"),
    "highlights": _lines(lambda at: "*?*"),
    "parentheses": _lines(lambda at: "(?)"),
    "min_numbers": _numbers,
    "exclude_words": _exclude,
    "forbidden_letter": _few_letters,
    "max_letter": _few_letters,
    "max_word_length": _short_words,
    "distinct_words": _all_distinct,
    "word_order": _order,
    "include_words": _include,
    "word_exactly": _often,
    "word_at_least": _often,
    "palindromes": _palindromes,
    "min_letter": _letter,
    "min_capital_words": _capitals,
    "exclamations": _exclaim,
    "exact_lines": _fit(
        lambda text: len(lines_of(text)),
        lambda draft: draft.blocks.append(f"{draft.word()} {draft.word()}"),
        _join_paragraphs,
        "exact",
    ),
    "exact_sentences": _fit(lambda text: len(sentences_of(text)), Draft.new_sentence, _drop_sentence, "exact"),
    "min_sentences": _fit(lambda text: len(sentences_of(text)), Draft.new_sentence, _drop_sentence, "min"),
    "max_sentences": _fit(lambda text: len(sentences_of(text)), Draft.new_sentence, _drop_sentence, "max"),
}


def _one_more(draft: Draft) -> None:
    draft.insert(draft.word())


def _one_less(draft: Draft) -> None:
    before = draft.text
    longest = max((sentence for paragraph in draft.paragraphs for sentence in paragraph), key=len, default=[])
    spare = [at for at in range(1, len(longest) - 1) if longest[at] in draft.candidates]
    if not spare:
        raise CannotWrite
    del longest[spare[-1]]
    assert draft.text != before


SIZES: Mapping[str, Step] = {
    "min_words": _fit(lambda text: len(words_of(text)), _one_more, _one_less, "min"),
    "max_words": _fit(lambda text: len(words_of(text)), _one_more, _one_less, "max"),
    "exact_words": _fit(lambda text: len(words_of(text)), _one_more, _one_less, "exact"),
}


def _wrapped_lines(text: str, p: Json) -> str:
    lines = []
    for line in text.split("\n"):
        while len(line) > p["count"] and " " in line[: p["count"] + 1].strip():
            at = line.rindex(" ", 0, p["count"] + 1)
            lines.append(line[:at])
            line = line[at + 1 :]
        lines.append(line)
    return "\n".join(lines)


WRAPS: Mapping[str, Callable[[str, Json], str]] = {
    "choice": lambda text, p: str(p["options"][0]),
    "two_answers": lambda text, p: f"{text}\n{SEPARATOR}\nAnother way.",
    "postscript": lambda text, p: f"{text}\n\nP.S. One more thought.",
    "starts_with": lambda text, p: f"{p['text']} {text}",
    "title": lambda text, p: f"<<A short title>>\n{text}",
    "repeat_first": lambda text, p: f"{p['text']}\n{text}",
    "ends_with": lambda text, p: f"{text} {p['text']}",
    "ends_with_question": lambda text, p: text if text.endswith("?") else f"{text} Is that so?",
    "json_only": lambda text, p: json.dumps({"answer": text}, ensure_ascii=False),
    "quotation": lambda text, p: f'"{text}"',
    "max_line_length": _wrapped_lines,
    "all_lowercase": lambda text, p: text.lower(),
    "all_uppercase": lambda text, p: text.upper(),
}


def written(constraints: list[Json]) -> str | None:
    """A text that keeps all of these constraints, or None if none was found."""
    try:
        draft = Draft(constraints)
        for _ in range(ROUNDS):
            for table in (STEPS, SIZES):
                for kind, step in table.items():
                    for constraint in draft.of(kind):
                        if not followed(draft.text.strip(), constraint):
                            step(draft, constraint)
            text = draft.text.strip()
            if all(followed(text, each) for each in constraints):
                return text
    except CannotWrite:
        pass
    return None
