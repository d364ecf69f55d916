"""Finds links of the site's pages that lead nowhere."""

import os
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and (name == "id" or (tag, name) == ("a", "name")):
                self.anchors.add(value)


@cache
def _read(path: Path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def broken_links(site: Path) -> list[str]:
    """Links within the site to files or anchors that do not exist, each with its page."""
    broken = []
    for page in sorted(site.rglob("*.html")):
        for link in dict.fromkeys(_read(page).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page
            if parts.path:
                target = Path(os.path.normpath(page.parent / unquote(parts.path)))
            exists = target.is_file() and target.is_relative_to(site)
            if exists and parts.fragment and target.suffix == ".html":
                exists = unquote(parts.fragment) in _read(target).anchors
            if not exists:
                broken.append(f"{page.relative_to(site)}: broken link {link}")
    return broken
