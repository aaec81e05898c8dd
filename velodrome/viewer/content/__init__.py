"""What a model wrote, drawn: text in, markup out. Nothing here reads or writes anything.

Each function returns markup that it built itself from a fixed set of elements and attributes, or None: show it plain.
"""

from __future__ import annotations

from markupsafe import Markup

from velodrome.viewer.content.attached import Attachment, attachments

__all__ = ["Attachment", "attachments", "code", "rich_text", "tool_result"]


def rich_text(text: str) -> Markup | None:
    """Markdown and LaTeX, drawn."""
    return None


def tool_result(text: str) -> Markup | None:
    """JSON as a tree, a diff and terminal colours, drawn."""
    return None


def code(text: str, language: str) -> Markup | None:
    """Code with its words coloured."""
    return None
