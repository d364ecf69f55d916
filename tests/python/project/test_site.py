"""The pages of `make docs`, without the references: the tests do not install what these need."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILDER = ROOT / "tools" / "site_builder"
REFERENCES = ("python/recoup.html", "cpp/index.html")

# rich brings what renders pages.
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from links import broken_links
from pages import write_pages
write_pages(Path(sys.argv[2]), Path(sys.argv[3]))
print("\\n".join(broken_links(Path(sys.argv[3]))))
"""


def write_pages(root: Path, site: Path) -> list[str]:
    """Renders the pages of a tree, and returns the broken links but those to the references."""
    site.mkdir()
    command = [sys.executable, "-c", SCRIPT, BUILDER, root, site]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return [line for line in done.stdout.splitlines() if not line.endswith(REFERENCES)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "docs" / "results").mkdir(parents=True)
    (root / "README.md").write_text("# recoup\n[all](docs/README.md#for-users) ![p](docs/p.png)\n")
    (root / "CHANGELOG.md").write_text("# Changes\n")
    (root / "docs/README.md").write_text(
        "# Pages\n[other](results/README.md)\n## For `users`\n- [a](a.md): A\n"
    )
    (root / "docs/results/README.md").write_text("# Figures\n- [r](r.md): R, [a](../a.md)\n")
    (root / "docs/a.md").write_text(
        "# A & B\n[r](results/r.md#r) [top](../README.md) [code](../x.cpp)\n```bash\nls <&1\n```\n"
    )
    (root / "docs/results/r.md").write_text("# R\n|a|b|\n|---|---|\n|1|2|\n")
    (root / "docs/p.png").write_bytes(b"picture")
    (root / "x.cpp").write_text("int x;\n")
    return root


def test_all_pages_are_rendered_without_broken_links(tmp_path: Path) -> None:
    assert write_pages(ROOT, tmp_path / "site") == []
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("build/messages.md")]
    assert len(list((tmp_path / "site").rglob("*.html"))) == len(pages)


def test_a_tree_becomes_a_site(tree: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    assert write_pages(tree, site) == []
    assert (site / "docs/p.png").read_bytes() == b"picture"
    assert (site / "x.cpp.txt").read_text() == "int x;\n"
    start = (site / "index.html").read_text("utf-8")
    assert '<a href="docs/index.html#for-users">all</a>' in start
    page = (site / "docs/a.html").read_text("utf-8")
    assert "<title>A &amp; B - recoup</title>" in page
    assert '<a href="results/r.html#r">r</a> <a href="../index.html">top</a>' in page
    assert '<a href="../docs/a.html" aria-current="page">a</a>' in page
    places = [page.index(text) for text in ("Pages</summary>", "docs/a.html", "Figures</summary>")]
    assert places == sorted(places)
    assert '<a href="../docs/results/r.html">results/r</a></details>' in page.replace("\n", "")
    assert "&lt;" in page and "<table>" in (site / "docs/results/r.html").read_text("utf-8")


def test_broken_links_are_found(tree: Path, tmp_path: Path) -> None:
    (tree / "docs/results/r.md").write_text("# R\n[a](../a.md#no)\n")
    broken = "docs/results/r.html: broken link ../a.html#no"
    assert write_pages(tree, tmp_path / "site") == [broken]
    (tree / "docs/a.md").write_text("# A\n[b](b.md)\n")
    with pytest.raises(ValueError, match=r"docs/a.md: there is no file b.md"):
        write_pages(tree, tmp_path / "again")
