"""Markdown and formulas as markup. This module writes an element for each kind of token from the parser.

HTML in the text stays text. A text that is too long, too deep or too dense is not parsed, so the time is bounded.
References (`[1]: address`) stay text too, because they would disappear from the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from velodrome.records.mending import HOSTILE
from velodrome.viewer.content.attached import checked_image, host, safe_address
from velodrome.viewer.content.formula import ENDS, add_formulas, formula
from velodrome.viewer.content.highlighting import coloured
from velodrome.viewer.parts.safe_text import attribute, scrolling, visible

MOST_TEXT = 40_000  # characters
MOST_MARKUP = 1_000_000
MOST_GROWTH = 20  # characters of markup per character of text, beyond the first ten thousand
_MOST_NESTING = 60  # levels of tokens; the parser drops deeper ones, so a deeper text is shown plain
_MOST_CELLS = 20_000
_MOST_LINKS = 300
_MOST = {
    "\n": 4_000,
    "$": 800,
    "\\(": 400,
    "\\[": 400,
    "![": 50,
    "[": 3_000,
    "`": 4_000,
    "*": 6_000,
    "_": 6_000,
    "<": 4_000,
    "|": 6_000,
}
_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-+*]|\d{1,9}[.)])(?=[ \t>]|$)){12}", re.MULTILINE)
_DEEPEST_BRACKETS = 12
_DELIMITERS = re.compile(r"^[ >\t]*[|:-][|: \t-]*$", re.MULTILINE)
_BARE = re.compile(r"https?://[^\s<>\"'`\\)\]}|]*[\w/=&#-]")
_ELEMENTS = {
    "paragraph": "p", "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "blockquote": "blockquote",
    "thead": "thead", "tbody": "tbody", "tr": "tr", "em": "em", "strong": "strong", "s": "s",
}  # fmt: skip
_PLAIN = frozenset(("paragraph_open", "paragraph_close", "inline"))
_PLAIN_INLINE = frozenset(("text", "softbreak"))
_ADDRESS_LIKE = re.compile(r"://|\w\.\w{2,}|@")
_PRICE = re.compile(r"\d[\d.,]*\s+[^\W\d_]{2,}(?![^\s]*[\\^_{])")  # `$5 and 6$` is not a formula


def rich_text(text: str) -> Markup | None:
    """The text as markup, or None if it is plain or too large."""
    text = text.replace("\r\n", "\n")
    if not text.strip() or not _bounded(text):
        return None
    try:
        tokens = _parser().parse(text)
    except (*HOSTILE, RuntimeError):
        return None
    if _is_plain(tokens) or any(token.level > _MOST_NESTING - 10 for token in tokens):
        return None
    markup = "".join(_Writer().blocks(tokens))
    most = min(MOST_MARKUP, 10_000 + MOST_GROWTH * len(text))
    return Markup(f'<div class="rich">{markup}</div>') if len(markup) <= most else None


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MOST_NESTING})
    parser.enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline", "reference", "normalize"])
    add_formulas(parser)
    return parser


def _bounded(text: str) -> bool:
    """Whether the text can be parsed in a short time."""
    if len(text) > MOST_TEXT or _DEEP.search(text) or any(text.count(mark) > most for mark, most in _MOST.items()):
        return False
    widest = max((line.count("|") for line in _DELIMITERS.findall(text)), default=0)
    return widest * text.count("\n") <= _MOST_CELLS and not _deep_brackets(text)


def _deep_brackets(text: str) -> bool:
    depth = 0
    for step in re.findall(r"\[|\]|\n[ \t]*\n", text):
        depth = depth + 1 if step == "[" else max(0, depth - 1) if step == "]" else 0
        if depth > _DEEPEST_BRACKETS:
            return True
    return False


def _is_plain(tokens: Sequence[Token]) -> bool:
    """Whether the text has only paragraphs of words."""
    if any(token.type not in _PLAIN for token in tokens):
        return False
    inline = [child for token in tokens for child in token.children or ()]
    return all(each.type in _PLAIN_INLINE and not _BARE.search(each.content) for each in inline)


class _Writer:
    """Writes one text. Limits the number of links."""

    def __init__(self) -> None:
        self._links = 0

    def blocks(self, tokens: Sequence[Token]) -> Iterator[str]:
        for token in tokens:
            name = token.type.removesuffix("_open").removesuffix("_close")
            if token.type == "inline":
                yield from self._line(token.children or ())
            elif token.hidden:
                yield "\n" if token.nesting < 0 else ""
            elif token.nesting:
                yield _tag(token, name)
            elif name in ("fence", "code_block"):
                yield _code_block(token.content, token.info)
            elif name == "math_block":
                yield _formula(token, block=True)
            else:
                yield "<hr>\n" if name == "hr" else str(visible(token.content))

    def _line(self, tokens: Sequence[Token]) -> Iterator[str]:
        place = 0
        while place < len(tokens):
            token = tokens[place]
            if token.type == "link_open":
                end = next(at for at in range(place, len(tokens)) if tokens[at].type == "link_close")
                yield self._link(token, tokens[place + 1 : end])
                place = end
            elif token.type == "image":
                yield self._image(str(token.attrs.get("src", "")), token.content, str(token.attrs.get("title", "")))
            elif token.type == "text":
                yield self._text(token.content)
            else:
                yield _inline(token)
            place += 1

    def _link(self, opening: Token, label: Sequence[Token]) -> str:
        target, title = str(opening.attrs.get("href", "")), str(opening.attrs.get("title", ""))
        text = "".join(token.content for token in label)
        content = "".join(self._image_name(token) if token.type == "image" else _inline(token) for token in label)
        address = self._link_target(target)
        if address is None:
            return f"{content} ({visible(' '.join(filter(None, (target, title))))})"
        return f"{_link_start(address, title)}{content}</a>{_real_host(text, address)}"

    def _image_name(self, token: Token) -> str:
        return str(visible(f"{token.content or 'image'} ({str(token.attrs.get('src', ''))[:200]})"))

    def _image(self, target: str, label: str, title: str) -> str:
        if target[:5].lower() == "data:":
            image = checked_image(target, label or title)
            if image.src is not None:
                return f'<img src="{image.src}" alt="{escape(attribute(label or "image"))}">'
            return f'<span class="missing">{visible(label)} (image: {image.note})</span>'
        address = self._link_target(target)
        if address is None:
            return str(visible(f"![{label}]({target} {title})"))
        where = f'<span class="host">(image at {visible(host(address)[:200])})</span>'
        return f"{_link_start(address, title)}{visible(label or 'image')}</a> {where}"

    def _text(self, text: str) -> str:
        """A text with its bare addresses as links."""
        parts, at = [], 0
        for match in _BARE.finditer(text):
            address = self._link_target(match.group())
            if address is not None:
                shown = f"{_link_start(address)}{visible(address)}</a>{_real_host(address, address)}"
                parts += [str(visible(text[at : match.start()])), shown]
                at = match.end()
        return "".join((*parts, visible(text[at:])))

    def _link_target(self, target: str) -> str | None:
        self._links += 1
        return safe_address(target) if self._links <= _MOST_LINKS else None


def _tag(token: Token, name: str) -> str:
    start, end = ("</", ">\n") if token.nesting < 0 else ("<", ">")
    if name == "heading":
        return f"{start}h{min(6, int(token.tag[1:]) + 3)}{end}"  # below the page's own headings
    if name == "table":
        return "</table></div>\n" if token.nesting < 0 else f"{scrolling('Table')}<table>"
    if name in ("th", "td"):
        side = re.search("right|center", str(token.attrs.get("style", "")))
        return f'<{name} class="{side.group()}">' if side and token.nesting > 0 else f"{start}{name}>"
    if name == "ordered_list" and token.nesting > 0:
        return f'<ol start="{int(token.attrs.get("start", 1))}">'
    return f"{start}{_ELEMENTS[name]}{end if name in ('paragraph', 'list_item', 'blockquote', 'tr') else '>'}"


def _inline(token: Token) -> str:
    if token.nesting:
        name = _ELEMENTS.get(token.type.removesuffix("_open").removesuffix("_close"))
        return f"<{'/' if token.nesting < 0 else ''}{name}>" if name else ""
    if token.type in ("softbreak", "hardbreak"):
        return "<br>\n"
    if token.type == "code_inline":
        return f"<code>{visible(token.content)}</code>"
    if token.type in ("math_inline", "math_inline_double"):
        return _formula(token, block=token.type == "math_inline_double")
    return str(visible(token.content))


def _formula(token: Token, *, block: bool) -> str:
    start = token.markup
    source = start + token.content + ENDS.get(start, start)
    if start == "$" and _PRICE.match(token.content):
        return str(visible(source))
    markup = formula(token.content.strip(), block=block)
    if markup is None:
        return f"<code>{visible(source)}</code>"
    return f"{scrolling('Formula', source, 'span', 'formula')}{markup}</span>" if block else markup


def _code_block(text: str, info: str) -> str:
    language = info.split()[0] if info.strip() else ""
    shown = coloured(text.removesuffix("\n"), language) or visible(text.removesuffix("\n"))
    named = f'<span class="language">{visible(info.strip()[:100])}</span>' if info.strip() else ""
    label = f"Code, {attribute(language, 40)}" if language else "Code"
    return f'<div class="code-block">{named}{scrolling(label, text, "pre")}<code>{shown}</code></pre></div>\n'


def _link_start(address: str, title: str = "") -> str:
    """The opening tag of a link to a safe address."""
    title_attribute = f' title="{escape(attribute(title))}"' if title else ""
    return f'<a href="{escape(address)}" rel="noreferrer noopener"{title_attribute}>'


def _real_host(text: str, address: str) -> str:
    """The host of a link, shown beside it if its text looks like another address."""
    real = host(address).lower()
    claimed = re.sub(r"^(https?://|mailto:)", "", text.strip().lower())
    if not _ADDRESS_LIKE.search(text) or re.match(re.escape(real) + r"($|[/?#:])", claimed):
        return ""
    return f' <span class="host">({visible(host(address)[:200])})</span>'
