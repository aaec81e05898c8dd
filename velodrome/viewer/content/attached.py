"""Images, audio and files in a message's content, named and checked; remote ones are links, never loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Attachment:
    """One part of a content that is not text. `src` is an image that is safe to draw; `href` is an address."""

    kind: str  # image, audio, video, file
    name: str
    size: int | None = None  # bytes, if they are here
    src: str | None = None
    href: str | None = None
    note: str = ""


def attachments(content: Any) -> list[Attachment]:
    """The attachments of a content, in order."""
    return []
