"""Links to addresses that a model wrote: a link names its host if its text looks like another address."""

from __future__ import annotations

import re
from html import escape

from velodrome.viewer.content.attached import host
from velodrome.viewer.parts.safe_text import attribute, visible

_ADDRESS_LIKE = re.compile(r"://|\w\.\w{2,}|@")


def link_start(address: str, title: str = "") -> str:
    """The opening tag of a link to a safe address."""
    more = f' title="{escape(attribute(title))}"' if title else ""
    return f'<a href="{escape(address)}" rel="noreferrer noopener"{more}>'


def honest(text: str, address: str) -> str:
    """Where a link leads, if its text looks as if it led elsewhere; markup to stand beside it."""
    own = host(address).lower()
    said = re.sub(r"^(https?://|mailto:)", "", text.strip().lower())
    if not _ADDRESS_LIKE.search(text) or re.match(re.escape(own) + r"($|[/?#:])", said):
        return ""
    return f' <span class="host">({visible(host(address)[:200])})</span>'
