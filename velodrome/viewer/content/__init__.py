"""What a model wrote, drawn: text in, markup out. Nothing here reads or writes anything.

Each function returns markup that it built itself from a fixed set of elements and attributes, or None: show it plain.
"""

from __future__ import annotations

from velodrome.viewer.content.attached import Attachment, attachments
from velodrome.viewer.content.highlighting import code
from velodrome.viewer.content.markdown_text import rich_text
from velodrome.viewer.content.tool_output import tool_result

__all__ = ["Attachment", "attachments", "code", "rich_text", "tool_result"]
