"""A unified diff, as `diff -u` and git write it, with a class per kind of line. Lines around it stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from markupsafe import Markup

from velodrome.viewer.content.scroll_region import scrolling
from velodrome.viewer.parts.safe_text import visible

_MOST_LINES = 5_000
_HUNK = re.compile(r"@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@")
_SEEN = re.compile(r"^(?:--- |diff --git |index [0-9a-f]+\.\.)[^\n]*\n", re.MULTILINE)
_HEADS = (
    "diff ", "index ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode", "rename ", "copy ",
    "similarity ", "dissimilarity ", "Binary files ",
)  # fmt: skip


def diff_lines(text: str) -> Markup | None:
    """The diff as markup, or None: this is not one."""
    if "\n@@ -" not in text or not _SEEN.search(text) or text.count("\n") > _MOST_LINES:
        return None
    made = "".join(_lines(text))
    return Markup(f"{scrolling('Diff', text, 'pre', 'scroll diff')}{made}</pre>") if "<span" in made else None


def _lines(text: str) -> Iterator[str]:
    old = new = 0  # lines of the hunk that are still to come
    for line in text.removesuffix("\n").split("\n"):
        hunk = _HUNK.match(line)
        kind = ""
        if hunk is not None:
            old, new = (int(count) if count is not None else 1 for count in hunk.groups())
            kind = "hunk"
        elif old > 0 or new > 0:
            kind = {"+": "added", "-": "removed"}.get(line[:1], "")
            old -= line[:1] not in ("+", "\\")
            new -= line[:1] not in ("-", "\\")
        elif line.startswith(_HEADS):
            kind = "about"
        shown = visible(line)
        yield f'<span class="d-{kind}">{shown}\n</span>' if kind else f"<span>{shown}\n</span>"
