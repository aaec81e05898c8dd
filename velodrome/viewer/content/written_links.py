"""Addresses that a model wrote: only those of the web and of mail become links, and nobody is led astray by a text."""

from __future__ import annotations

import re
from html import escape
from urllib.parse import urlsplit

from velodrome.timing.invisible import INVISIBLE
from velodrome.viewer.parts.safe_text import attribute, visible

_LONGEST = 2_000
_LINKED = re.compile(r"(?i)(?:https?://[^\s/?#\\<>\"]+[^\s\\<>\"]*|mailto:[^\s\\<>\"]+)")
_ADDRESS_LIKE = re.compile(r"://|\w\.\w{2,}|@")


def safe_address(address: str) -> str | None:
    """The address if it may be a link, or None."""
    if len(address) > _LONGEST or INVISIBLE.search(address) or not _LINKED.fullmatch(address):
        return None
    return address if address[:7].lower() == "mailto:" or host(address) else None


def host(address: str) -> str:
    """The host of an address of the web, or the whole address of a mail."""
    try:
        parts = urlsplit(address)
        return parts.path if parts.scheme == "mailto" else parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""


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
