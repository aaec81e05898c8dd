"""Code with its words coloured: a class per kind of word, for a fixed set of languages.

A language is looked up by its name, never guessed. The words of the code are all there, in order.
"""

from __future__ import annotations

from functools import cache

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String, _TokenType

from velodrome.records.mending import HOSTILE
from velodrome.viewer.parts.safe_text import visible

MOST_CODE = 20_000  # characters
_LONGEST_LINE = 2_000

_NAMES = {  # how people write a language, and what Pygments calls it
    **{name: name for name in "bash c cpp css diff go html ini java javascript json julia kotlin lua makefile".split()},
    **{
        name: name for name in "perl php powershell python r ruby rust scala sql swift toml typescript xml yaml".split()
    },
    **dict.fromkeys(("py", "python3", "ipython", "python-repl", "py3"), "python"),
    "pycon": "pycon",
    **dict.fromkeys(("sh", "shell", "zsh"), "bash"),
    **dict.fromkeys(("console", "shell-session", "terminal"), "console"),
    **dict.fromkeys(("js", "jsx", "mjs", "node"), "javascript"),
    **dict.fromkeys(("ts", "tsx"), "typescript"),
    **dict.fromkeys(("json5", "jsonc", "jsonl"), "json"),
    **dict.fromkeys(("c++", "cc", "cxx", "hpp", "cuda"), "cpp"),
    **dict.fromkeys(("c#", "cs", "csharp"), "csharp"),
    **dict.fromkeys(("yml",), "yaml"),
    **dict.fromkeys(("tex", "latex"), "latex"),
    **dict.fromkeys(("golang",), "go"),
    **dict.fromkeys(("rs",), "rust"),
    **dict.fromkeys(("rb",), "ruby"),
    **dict.fromkeys(("kt",), "kotlin"),
    **dict.fromkeys(("jl",), "julia"),
    **dict.fromkeys(("hs", "haskell"), "haskell"),
    **dict.fromkeys(("make",), "makefile"),
    **dict.fromkeys(("docker", "dockerfile"), "docker"),
    **dict.fromkeys(("svg", "xhtml"), "xml"),
    **dict.fromkeys(("postgres", "postgresql", "sqlite", "mysql"), "sql"),
    **dict.fromkeys(("patch", "udiff"), "diff"),
}
_KINDS: tuple[tuple[_TokenType, str], ...] = (  # the first that fits
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
    """The code as markup, or None: show it plain."""
    name = _NAMES.get(language.strip().lower())
    text = text.replace("\r\n", "\n")
    if name is None or len(text) > MOST_CODE or max(map(len, text.split("\n"))) > _LONGEST_LINE:
        return None
    parts: list[str] = []
    length = 0
    run, kind = "", ""
    try:
        for _, token, value in _lexer(name).get_tokens_unprocessed(text):
            length += len(value)
            now = _kind(token)
            if now != kind and not value.isspace():
                parts.append(_span(kind, run))
                run, kind = "", now
            run += value
    except HOSTILE:
        return None
    parts.append(_span(kind, run))
    return Markup("".join(parts)) if length == len(text) else None


@cache
def _lexer(name: str) -> Lexer:
    return get_lexer_by_name(name)


@cache
def _kind(token: _TokenType) -> str:
    return next((kind for known, kind in _KINDS if token in known), "")


def _span(kind: str, text: str) -> str:
    if not text:
        return ""
    shown = str(visible(text))
    return f'<span class="y-{kind}">{shown}</span>' if kind else shown
