"""Images, audio and files in a message's content, named and checked. Nothing remote is loaded; it becomes a link.

An image is drawn only if its bytes are in the file and have the right format: PNG, JPEG, GIF or WebP of a bounded size.
SVG is never drawn, because it is a document.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from velodrome.timing.invisible import INVISIBLE

Json = dict[str, Any]

MOST_IMAGE_BYTES = 5_000_000
MOST_PIXELS = 40_000_000
MOST_ATTACHMENTS = 50  # of one content
_LONGEST_ADDRESS = 2_000
_LINKED = re.compile(r"(?i)(?:https?://[^\s/?#\\<>\"]+[^\s\\<>\"]*|mailto:[^\s\\<>\"]+)")
_DEEPEST = 3  # levels of content, such as a tool's result in a message
_DATA = re.compile(r"data:([^;,]{0,100})((?:;[^;,]{0,100}){0,5}),", re.IGNORECASE)
_KINDS = {
    **dict.fromkeys(("audio", "input_audio", "output_audio", "audio_url"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    **dict.fromkeys(("image", "image_url", "input_image", "output_image"), "image"),
    **dict.fromkeys(("computer_screenshot", "image_generation_call"), "image"),
    **dict.fromkeys(("file", "input_file", "document", "resource", "resource_link", "file_url"), "file"),
}


@dataclass(frozen=True, slots=True)
class Attachment:
    """One part of a content that is not text. `src` is an image that is safe to draw; `href` is an address."""

    kind: str  # image, audio, video, file
    name: str
    size: int | None = None  # bytes, if they are in the file
    src: str | None = None
    href: str | None = None
    note: str = ""  # its type and measures, or why it is not drawn


def attachments(content: Any) -> list[Attachment]:
    """The attachments of a content, in order: of OpenAI's chat and Responses shapes, Anthropic's and MCP's."""
    result: list[Attachment] = []
    for part in _parts(content, 0):
        if len(result) == MOST_ATTACHMENTS:
            break
        result.append(_attachment(part))
    return result


def _parts(content: Any, depth: int) -> Iterator[Json]:
    for part in content if isinstance(content, list) else (content,):
        if not isinstance(part, dict):
            continue
        if str(part.get("type")) in _KINDS:
            yield part
        elif depth < _DEEPEST and isinstance(part.get("content"), list | dict):
            yield from _parts(part["content"], depth + 1)


def _attachment(part: Json) -> Attachment:
    kind = _KINDS[part["type"]]
    inner: Json = next(
        (part[key] for key in ("source", "resource", part["type"]) if isinstance(part.get(key), dict)), {}
    )
    fields = {**part, **inner}

    def text(*names: str) -> str:
        return next((fields[name] for name in names if isinstance(fields.get(name), str) and fields[name]), "")

    name = text("filename", "title", "name", "file_id", "id")[:200]
    data = text("data", "file_data", "blob", "result")
    address = text("image_url", "file_url", "audio_url", "video_url", "url", "uri")
    media = text("media_type", "mimeType", "mime_type", "format")[:100]
    if address[:5].lower() == "data:":
        data, address = address, ""
    if kind == "image" and data:
        return checked_image(data, name)
    if data:
        media = _data_parts(data)[0] or media
        return Attachment(kind, name or kind, _size(data), note=media or "unknown type")
    if address:
        return Attachment(
            kind, name or host(address) or address[:200], href=safe_address(address), note=media or "not loaded"
        )
    content = fields.get("text")
    size = len(content.encode("utf-8", "replace")) if isinstance(content, str) else None
    return Attachment(kind, name or kind, size, note=media or ("" if size else "its content is not in the file"))


def checked_image(source: str, name: str = "") -> Attachment:
    """An image from a `data:` address or from base64, drawn if its bytes are of a known format."""
    size, name = _size(source), name or "image"
    if size > MOST_IMAGE_BYTES:
        return Attachment("image", name, size, note="too large to draw")
    data = _bytes(source)
    if data is None:
        return Attachment("image", name, size, note="not base64")
    image = image_size(data)
    if image is None:
        return Attachment("image", name, len(data), note="not a PNG, JPEG, GIF or WebP image")
    media, width, height = image
    measures = f"{media.removeprefix('image/')}, {width:,} × {height:,}"
    if not 0 < width * height <= MOST_PIXELS:
        return Attachment("image", name, len(data), note=f"too large to draw: {measures}")
    src = f"data:{media};base64,{b64encode(data).decode()}"
    return Attachment("image", name, len(data), src, note=measures)


def image_size(data: bytes) -> tuple[str, int, int] | None:
    """The type, the width and the height of an image, from its bytes."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
        return "image/png", int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) > 10:
        return "image/gif", int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _webp(data)
    return _jpeg(data) if data[:3] == b"\xff\xd8\xff" else None


def _webp(data: bytes) -> tuple[str, int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return "image/webp", 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return "image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and len(data) >= 30:
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
        return "image/webp", width, height
    return None


def _jpeg(data: bytes) -> tuple[str, int, int] | None:
    at = 2
    for _ in range(200):  # segments before the picture
        if at + 9 > len(data) or data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return "image/jpeg", int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _data_parts(source: str) -> tuple[str, bool, str]:
    """The type in a `data:` address, whether it is base64, and its data. Plain base64 has no type."""
    head = _DATA.match(source)
    if head is None:
        return "", True, source
    return head.group(1), ";base64" in head.group(2).lower(), unquote(source[head.end() :])


def _bytes(source: str) -> bytes | None:
    _, encoded, data = _data_parts(source)
    try:
        return b64decode("".join(data.split()), validate=True) if encoded else None
    except (binascii.Error, ValueError):
        return None


def _size(source: str) -> int:
    """The size of the decoded bytes, without decoding them."""
    data = _data_parts(source)[2]
    return max(0, len(data) * 3 // 4 - data[-2:].count("="))


def safe_address(address: str) -> str | None:
    """The address if it is a safe link of the web or of mail; or None."""
    if len(address) > _LONGEST_ADDRESS or INVISIBLE.search(address) or not _LINKED.fullmatch(address):
        return None
    return address if address[:7].lower() == "mailto:" or host(address) else None


def host(address: str) -> str:
    """The host of a web address, or a whole mail address."""
    try:
        parts = urlsplit(address)
        return parts.path if parts.scheme == "mailto" else parts.netloc.rpartition("@")[2]
    except ValueError:
        return ""
