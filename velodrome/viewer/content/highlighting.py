"""Code with coloured words: a class per kind of word, for a fixed set of languages.

A language is looked up by its name, never guessed. All words of the code are shown, in order.
"""

from __future__ import annotations

import re
from functools import cache

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String, _TokenType

from velodrome.records.mending import HOSTILE
from velodrome.viewer.parts.safe_text import scrolling, visible

MOST_CODE = 20_000  # characters
_MOST_OF_SLOW = {"go": 4_000, "perl": 4_000}  # their lexers search for the end of a string from each quote
_LONGEST_LINE = 800
_MOST = {"/*": 200, "<!--": 200, "<<": 200}  # starts; a lexer searches for the end from each of them
_GAP = re.compile(r"\s{200}")

_GROUPS = """
bash sh shell zsh | console shell-session terminal | c | cpp c++ cc cxx hpp cuda java csharp cs c# | css |
diff patch udiff | docker dockerfile | go golang | haskell hs | html | ini | javascript js jsx mjs node |
json json5 jsonc jsonl | julia jl | kotlin kt | latex tex | lua | perl | php | powershell | pycon python-repl |
python py py3 python3 ipython | r | ruby rb | rust rs | scala | sql postgres postgresql sqlite mysql | swift | toml |
typescript ts tsx | xml svg xhtml | yaml yml
"""  # the name in Pygments, then aliases. Java and C# use the lexer of C++, because theirs can take minutes
LANGUAGES = {name: group.split()[0] for group in _GROUPS.split("|") for name in group.split()}
_KINDS: tuple[tuple[_TokenType, str], ...] = (  # the first match counts
    (Comment, "c"),
    (Keyword, "k"),
    (String, "s"),
    (Number, "m"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "a"),
    (Name.Attribute, "a"),
    (Name.Tag, "k"),
    (Name.Builtin, "b"),
    (Name.Exception, "b"),
    (Name.Constant, "m"),
    (Generic.Deleted, "gd"),
    (Generic.Inserted, "gi"),
    (Generic.Heading, "gh"),
    (Generic.Subheading, "gh"),
    (Generic.Prompt, "c"),
)


def code(text: str, language: str) -> Markup | None:
    """The code as a block, or None: show it plain."""
    markup = coloured(text, language)
    return None if markup is None else Markup(f"{scrolling('Code', text, 'pre')}<code>{markup}</code></pre>")


def coloured(text: str, language: str) -> Markup | None:
    """The code with coloured words, or None."""
    name = LANGUAGES.get(language.strip().lower())
    text = text.replace("\r\n", "\n")
    if name is None or not _bounded(text) or len(text) > _MOST_OF_SLOW.get(name, MOST_CODE):
        return None
    parts: list[str] = []
    length = 0
    run, kind = "", ""
    try:
        for _, token, value in _lexer(name).get_tokens_unprocessed(text + "\n"):  # some lexers need a whole last line
            length += len(value)
            token_kind = _kind(token)
            if token_kind != kind and not value.isspace():
                parts.append(_span(kind, run))
                run, kind = "", token_kind
            run += value
    except HOSTILE:
        return None
    parts.append(_span(kind, run.removesuffix("\n")))
    return Markup("".join(parts)) if length == len(text) + 1 else None


def _bounded(text: str) -> bool:
    """Whether a lexer is fast on this text: their patterns are slow on long lines and on much white space."""
    if len(text) > MOST_CODE or _GAP.search(text) or any(text.count(mark) > most for mark, most in _MOST.items()):
        return False
    return max(map(len, text.split("\n"))) <= _LONGEST_LINE


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name)


@cache
def _kind(token: _TokenType) -> str:
    return next((kind for group, kind in _KINDS if token in group), "")


def _span(kind: str, text: str) -> str:
    if not text:
        return ""
    shown = str(visible(text))
    return f'<span class="y-{kind}">{shown}</span>' if kind else shown
