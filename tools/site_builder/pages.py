"""Renders the Markdown pages of the project as HTML, each at its place in the tree.

Links to other pages lead to the rendered pages. Other files that pages link to, pictures for one,
are copied to the same place.
"""

import html
import itertools
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

# The first page of each group of readers, in the order of the navigation.
INDEXES = (
    "docs/README.md",
    "docs/maintainers/README.md",
    "docs/research/README.md",
    "docs/results/README.md",
)
START = "README.md"
STYLE = Path(__file__).with_name("style.css")

_COLORS = HtmlFormatter(style="default"), HtmlFormatter(style="github-dark")
_HEADER = (
    ("recoup", "index.html"),
    ("All pages", "docs/index.html"),
    ("Python reference", "python/recoup.html"),
    ("C++ reference", "cpp/index.html"),
    ("Changes", "CHANGELOG.html"),
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<header>{header}</header>
<div class="columns">
<nav>{nav}</nav>
<main>
{body}</main>
</div>
</body>
</html>
"""


def page_files(root: Path) -> list[str]:
    """The pages, relative to the root of the project."""
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("build/messages.md")]
    return sorted(path.relative_to(root).as_posix() for path in pages)


def address(page: str) -> str:
    """The file of a page in the site: README.md is the index of its folder."""
    return re.sub(r"README$", "index", page.removesuffix(".md")) + ".html"


def write_pages(root: Path, site: Path) -> None:
    """Writes all pages, and the files that they link to."""
    parser = MarkdownIt("commonmark").enable("table")
    pages = page_files(root)
    index = _index(parser, root, pages)
    (site / "style.css").write_text(_style(), encoding="utf-8")
    for page in pages:
        tokens = parser.parse((root / page).read_text(encoding="utf-8"))
        _name_headings(tokens)
        for token in _all_tokens(tokens):
            for attribute in ("href", "src"):
                if attribute in token.attrs:
                    link = str(token.attrs[attribute])
                    token.attrs[attribute] = _link(root, site, page, link)
        renderer = RendererHTML()
        renderer.rules["fence"] = _code  # type: ignore[assignment]
        body = renderer.render(tokens, parser.options, {})
        target = site / address(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * page.count("/")
        header = "".join(f'<a href="{up}{link}">{name}</a>' for name, link in _HEADER)
        title = _title(tokens)
        target.write_text(
            _PAGE.format(
                title=html.escape(title if title == "recoup" else f"{title} - recoup"),
                up=up,
                header=header,
                nav=_nav(index, page),
                body=body,
            ),
            encoding="utf-8",
        )


def _style() -> str:
    light, dark = (colors.get_style_defs("pre") for colors in _COLORS)
    dark = "\n".join(line for line in dark.splitlines() if not line.startswith("pre {"))
    light = "\n".join(line for line in light.splitlines() if not line.startswith("pre {"))
    colors = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    return colors + STYLE.read_text(encoding="utf-8")


def _code(tokens: list[Token], at: int, *_: object) -> str:
    """A fenced block in colors. Only the first word after the fence is the language."""
    language = (tokens[at].info.split() or ["text"])[0]
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    return f"<pre>{highlight(tokens[at].content, lexer, HtmlFormatter(nowrap=True))}</pre>\n"


def _all_tokens(tokens: list[Token]) -> list[Token]:
    return [each for token in tokens for each in (token, *_all_tokens(token.children or []))]


def _text(token: Token) -> str:
    return "".join(each.content for each in _all_tokens(token.children or []))


def _name_headings(tokens: list[Token]) -> None:
    """Gives headings the anchors that GitHub gives them."""
    seen: Counter[str] = Counter()
    for heading, content in itertools.pairwise(tokens):
        if heading.type == "heading_open":
            anchor = re.sub(r"[^\w\- ]", "", _text(content).lower()).replace(" ", "-")
            heading.attrs["id"] = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            seen[anchor] += 1


def _title(tokens: list[Token]) -> str:
    for heading, content in itertools.pairwise(tokens):
        if heading.type == "heading_open" and heading.tag == "h1":
            return _text(content)
    raise ValueError("a page has no title")


def _link(root: Path, site: Path, page: str, link: str) -> str:
    """The link as it must be in the site. Copies the file that it leads to, unless it is a page."""
    parts = urlsplit(link)
    if parts.scheme or not parts.path:
        return link
    target = (root / page).parent / unquote(parts.path)
    name = Path(os.path.normpath(target)).relative_to(root).as_posix()
    if not target.is_file():
        raise ValueError(f"{page}: there is no file {link}")
    if target.suffix == ".md":
        to = address(name)
    else:
        # Sources become text files, which browsers show.
        to = name if target.suffix in (".json", ".png", ".txt") else f"{name}.txt"
        (site / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, site / to)
    relative = os.path.relpath(to, os.path.dirname(page) or ".")
    return relative + (f"#{parts.fragment}" if parts.fragment else "")


def _index(parser: MarkdownIt, root: Path, pages: list[str]) -> list[tuple[str, list[str]]]:
    """The titles of the first pages, each with the pages that it lists before any other does."""
    sections: list[tuple[str, list[str]]] = []
    listed = set(INDEXES)
    for index in INDEXES:
        if index not in pages:
            continue
        tokens = parser.parse((root / index).read_text(encoding="utf-8"))
        sections.append((_title(tokens), [index]))
        for token in _all_tokens(tokens):
            link = str(token.attrs.get("href", ""))
            page = os.path.normpath(Path(index).parent / link)
            if link and page in pages and page not in listed and page != START:
                sections[-1][1].append(page)
                listed.add(page)
    return sections


def _nav(index: list[tuple[str, list[str]]], current: str) -> str:
    up = "../" * current.count("/")
    parts = []
    for name, pages in index:
        is_open = " open" if current in pages or (name, pages) == index[0] else ""
        parts.append(f"<details{is_open}><summary>{html.escape(name)}</summary>")
        for page in pages:
            here = ' aria-current="page"' if page == current else ""
            shown = page.removeprefix("docs/").removesuffix(".md")
            parts.append(f'<a href="{up}{address(page)}"{here}>{html.escape(shown)}</a>')
        parts.append("</details>")
    return "\n".join(parts)
