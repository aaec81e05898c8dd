"""LaTeX as MathML, and where formulas begin and end in Markdown: `$…$`, `$$…$$`, `\\\\(…\\\\)` and `\\\\[…\\\\]`.

The converter's output is not trusted: it is rebuilt from a fixed set of elements and attributes. A formula cannot link,
load, colour, hide or move anything: such elements become plain rows. A formula that defines commands is not converted.
"""

from __future__ import annotations

import re
from functools import lru_cache
from xml.etree.ElementTree import Element

from latex2mathml import exceptions
from latex2mathml.converter import convert_to_element
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markupsafe import Markup
from mdit_py_plugins.dollarmath.index import math_inline_dollar

from velodrome.records.mending import HOSTILE
from velodrome.viewer.parts.safe_text import visible

ENDS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
MOST_LATEX = 2_000  # characters of one formula
_DEEPEST = 40  # braces and environments within each other
_MOST_NODES = 2_000
_MOST_GROWTH = 20  # characters of MathML per character of LaTeX, beyond the first thousand

_ELEMENTS = frozenset(
    ("math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup",
     "munder", "mover", "munderover", "mtable", "mtr", "mtd", "mstyle", "mmultiscripts", "mprescripts")
)  # fmt: skip
_ROWS = frozenset(("mpadded", "mphantom", "menclose", "merror"))  # only their content is shown, never hidden or moved
_ATTRIBUTES = frozenset(
    ("display", "displaystyle", "stretchy", "fence", "accent", "accentunder", "largeop", "movablelimits", "scriptlevel",
     "form", "mathvariant", "linethickness", "width", "minsize", "maxsize")
)  # fmt: skip
_VALUE = re.compile(
    r"inline|block|true|false|prefix|infix|postfix|normal|[0-2]|[0-2]?(\.\d{1,4})?em|-0?\.\d{1,4}em|0(px)?"
)
_CLASSES = {  # drawn by browsers only with a style
    ("notation", "box"): "boxed",
    ("notation", "updiagonalstrike"): "struck",
    ("notation", "downdiagonalstrike"): "struck",
    ("notation", "horizontalstrike"): "struck",
    ("mathvariant", "bold"): "bold",
    ("mathvariant", "bold-italic"): "bold",
    ("columnalign", "left"): "left",
    ("columnalign", "right"): "right",
}
_REFUSED = re.compile(  # they define commands or remove text
    r"\\(?:[egx]?def|let|(?:re)?newcommand|providecommand|(?:re)?newenvironment|DeclareMathOperator|href|class|style|"
    r"require|verb|label|mathchoice|leftroot|uproot)(?![a-zA-Z])"
)
_LINES = re.compile(r"\\(begin|end)\s*\{(?:aligned|align|gather|gathered|equation|eqnarray|multline|flalign)\*?\}")
_PERCENT = re.compile(r"(?<!\\)%")  # a comment would remove text; a model means per cent
_CODE = re.compile(r"&#x([0-9A-Fa-f]{1,6});")
_FAILURES: tuple[type[BaseException], ...] = (
    *HOSTILE,
    *(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)),
    StopIteration,
    RuntimeError,
)


@lru_cache(maxsize=512)
def formula(latex: str, *, block: bool = False) -> Markup | None:
    """The formula as a `<math>` element, or None: show its source."""
    if len(latex) > MOST_LATEX or not latex.strip() or _REFUSED.search(latex) or _depth(latex) > _DEEPEST:
        return None
    latex = _PERCENT.sub(r"\\%", _LINES.sub(r"\\\1{align*}", latex))
    try:
        tree = convert_to_element(latex, display="block" if block else "inline")
        if sum(1 for _ in tree.iter()) > _MOST_NODES:
            return None
        markup = _rebuilt(tree)
    except _FAILURES:
        return None
    return Markup(markup) if len(markup) <= _MOST_GROWTH * len(latex) + 1_000 else None


def _depth(latex: str) -> int:
    """The nesting depth of groups."""
    depth = deepest = 0
    for step in re.findall(r"\\\\|\\[{}]|\\left(?![a-z])|\\right(?![a-z])|\\begin|\\end|[{}]", latex):
        depth += {"{": 1, "\\left": 1, "\\begin": 1, "}": -1, "\\right": -1, "\\end": -1}.get(step, 0)
        deepest = max(deepest, depth)
    return deepest


def _rebuilt(node: Element) -> str:
    if node.tag in _ROWS:
        name = "mrow"
    elif node.tag in _ELEMENTS:
        name = node.tag
    else:
        raise ValueError(node.tag)
    allowed = ((key, value) for key, value in node.attrib.items() if key in _ATTRIBUTES and _VALUE.fullmatch(value))
    shown = "".join(f' {key}="{value}"' for key, value in allowed)
    classes = sorted({_CLASSES[pair] for pair in node.attrib.items() if pair in _CLASSES})
    if classes:
        shown += f' class="{" ".join(classes)}"'
    content = _text(node.text) + "".join(_rebuilt(child) + _text(child.tail) for child in node)
    return f"<{name}{shown}>{content}</{name}>"


def _text(text: str | None) -> str:
    if not text:
        return ""
    return str(visible(_CODE.sub(lambda match: chr(int(match.group(1), 16)), text)))


def add_formulas(parser: MarkdownIt) -> None:
    """Add the four forms to a parser. A block may follow a paragraph without an empty line."""
    dollars = math_inline_dollar(allow_space=False, allow_digits=False, allow_double=True)
    parser.inline.ruler.before("escape", "math_inline", dollars)
    parser.inline.ruler.before("escape", "math_brackets", _brackets)
    ends = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "math_block", _block, {"alt": ends})


def _brackets(state: StateInline, silent: bool) -> bool:
    start = state.src[state.pos : state.pos + 2]
    if start not in ("\\(", "\\["):
        return False
    end = state.src.find(ENDS[start], state.pos + 2, state.posMax)
    if end < 0 or not state.src[state.pos + 2 : end].strip():
        return False
    if not silent:
        token = state.push("math_inline" if start == "\\(" else "math_inline_double", "math", 0)
        token.content, token.markup = state.src[state.pos + 2 : end], start
    state.pos = end + 2
    return True


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A line that begins with `$$` or `\\[`, up to a line that ends it; no empty line, no line outside the list."""
    if state.is_code_block(start_line):
        return False
    begin = state.bMarks[start_line] + state.tShift[start_line]
    mark = state.src[begin : begin + 2]
    if mark not in ("$$", "\\["):
        return False
    lines: list[str] = []
    for line in range(start_line, end_line):
        at = begin + 2 if line == start_line else state.bMarks[line] + state.tShift[line]
        text = state.src[at : state.eMarks[line]].rstrip()
        outside = line > start_line and (not text or state.sCount[line] < state.blkIndent)
        if outside or ENDS[mark] in text.removesuffix(ENDS[mark]):
            return False
        lines.append(text.removesuffix(ENDS[mark]))
        if text.endswith(ENDS[mark]):
            break
    else:
        return False
    if not "".join(lines).strip():
        return False
    if not silent:
        state.line = line + 1
        token = state.push("math_block", "math", 0)
        token.block, token.content, token.markup = True, "\n".join(lines), mark
        token.map = [start_line, state.line]
    return True
