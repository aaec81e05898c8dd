"""What viewer/content/ makes, as a browser reads it: every element, attribute and address is looked at."""

from __future__ import annotations

import base64
import re
import struct
import zlib

from tests.support.parsed_page import Page
from tests.support.viewing import ODD

ELEMENTS = {
    "div", "span", "p", "br", "hr", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "em", "strong", "s", "code",
    "pre", "a", "img", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure", "figcaption",
    "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder",
    "mover", "munderover", "mtable", "mtr", "mtd", "mstyle", "mmultiscripts", "mprescripts",
}  # fmt: skip
ATTRIBUTES = {
    "class", "href", "rel", "title", "src", "alt", "start", "tabindex", "role", "aria-label", "open", "display",
    "displaystyle", "stretchy", "fence", "accent", "accentunder", "largeop", "movablelimits", "scriptlevel", "form",
    "mathvariant", "linethickness", "width", "minsize", "maxsize",
}  # fmt: skip


def png(width: int = 3, height: int = 2) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 20)) + chunk(b"IEND", b"")


PNG = base64.b64encode(png()).decode()
DATA = f"data:image/png;base64,{PNG}"
GIF = b"GIF89a\x05\x00\x04\x00" + b"\0" * 10
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x07\x00\x09\x03"
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00\x0b\x00\x00\x08\x00\x00"


def parsed(markup: str | None) -> Page:
    """The markup as a browser reads it, after a look at every element, attribute and address in it."""
    assert markup is not None
    page = Page(markup)
    assert (page.crossed, page.unclosed) == ([], [])
    for tag, attrs in page.tags:
        assert tag in ELEMENTS
        assert attrs.keys() <= ATTRIBUTES
        assert re.match(r"(https?://[^/]|mailto:.)", attrs.get("href") or "https://x", re.IGNORECASE)
        assert (attrs.get("rel") == "noreferrer noopener") == (tag == "a")
        assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", attrs.get("src") or DATA)
        assert ("src" in attrs) == (tag == "img")
        assert re.fullmatch(r"[a-z0-9 -]*", attrs.get("class") or "")
    assert not ODD.search("".join(page.text))
    return page


def tags(markup: str | None) -> list[str]:
    return [tag for tag, _ in parsed(markup).tags]


def classes(markup: str | None) -> set[str]:
    return {name for _, attrs in parsed(markup).tags for name in (attrs.get("class") or "").split()}
