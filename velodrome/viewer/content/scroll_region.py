"""Regions that scroll sideways: a keyboard reaches them if they may be wider than a small screen."""

from __future__ import annotations

from html import escape

_NARROW = 38  # characters on a line of a small screen


def scrolling(label: str, text: str | None = None, element: str = "div", kind: str = "scroll") -> str:
    """The opening tag of a region with this text in it."""
    wide = text is None or not text.isascii() or any(len(line.expandtabs()) > _NARROW for line in text.split("\n"))
    reach = f' tabindex="0" role="group" aria-label="{escape(label)}"' if wide else ""
    return f'<{element} class="{kind}"{reach}>'
