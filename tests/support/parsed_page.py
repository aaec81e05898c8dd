"""What a browser would see of a page: tags, attributes, text. Tags that are not closed in order are found."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "input", "img", "br", "hr", "rect", "line", "path", "circle"}


class Page(HTMLParser):
    """One page, parsed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.crossed: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.text.append(data)

    @property
    def words(self) -> str:
        """All text on one line."""
        return " ".join(" ".join(self.text).split())

    @property
    def unclosed(self) -> list[str]:
        return self._open

    def links(self) -> list[str]:
        """Where the page leads."""
        return [attrs["href"] or "" for tag, attrs in self.tags if tag == "a" and attrs.get("href")]
