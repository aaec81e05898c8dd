"""Where formulas begin and end in markdown: `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`, in a line or as a block."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath.index import math_inline_dollar

ENDS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}


def add_formulas(parser: MarkdownIt) -> None:
    """Teach a parser the four forms. A block may follow a paragraph without an empty line."""
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
