"""README.md and docs/: pages are short, and all links between them resolve.

The number of words is `len(text.split())` of the whole file, including code blocks and tables.
Pages of docs/results/, which are tables of figures, may have any length. The two references, in
which readers look up single entries, have a limit of their own.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.rglob("*.md"))
LINKED = [*sorted(ROOT.glob("*.md")), *PAGES]

REFERENCES = {DOCS / "reference.md", DOCS / "commands.md"}

README_WORDS = 700
PAGE_WORDS = 1200
REFERENCE_WORDS = 2400

FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
CODE = re.compile(r"`[^`]+`")
# `[text](link)`, `[text](link "title")` and `[name]: link`
LINK = re.compile(r"\]\(([^()\s]+)(?: +\"[^\"]*\")?\)|^\[[^\]]+\]: *(\S+)", re.M)
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in HEADING.findall(text_of(page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def links(page: Path) -> list[str]:
    return [first or second for first, second in LINK.findall(CODE.sub("", text_of(page)))]


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(root) or not target.exists():
            broken.append(link)
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            broken.append(link)
    return broken


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= README_WORDS


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent != DOCS / "results"],
    ids=name,
)
def test_page_is_short(page: Path) -> None:
    limit = REFERENCE_WORDS if page in REFERENCES else PAGE_WORDS
    assert len(page.read_text(encoding="utf-8").split()) <= limit


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_resolve(page: Path) -> None:
    assert not broken_links(page)


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# `A` page, or two\n[a](#a-page-or-two) [b](#b) [c](gone.md) `[d](gone.md)`\n"
        '[e](lost.md "E") [f][g]\n\n[g]: away.md\n'
    )
    assert anchors(page) == {"a-page-or-two"}
    assert broken_links(page, tmp_path) == ["#b", "gone.md", "lost.md", "away.md"]


def test_sources_name_pages_that_exist() -> None:
    """Docstrings, comments and messages name pages by their paths."""
    lost = []
    with_made_up_pages = Path(__file__).parent
    for folder in ("python", "include", "csrc", "tests", "tools", "bench", "examples"):
        for source in sorted((ROOT / folder).rglob("*")):
            is_text = source.suffix in (".py", ".pyi", ".h", ".cpp", ".txt", ".sh", ".html", ".js")
            if is_text and source.parent != with_made_up_pages:
                text = source.read_text(encoding="utf-8")
                pages = re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md\b", text)
                lost += [f"{name(source)}: {page}" for page in pages if not (ROOT / page).exists()]
    assert lost == []


def test_every_page_is_linked_from_the_first_page_of_its_folder() -> None:
    folders = sorted({page.parent for page in PAGES})
    lost = []
    for folder in folders:
        first = folder / "README.md"
        linked = {(folder / link.partition("#")[0]).resolve() for link in links(first)}
        lost += [name(page) for page in folder.glob("*.md") if page not in linked | {first}]
    assert lost == []


@pytest.mark.parametrize("folder", ["", "maintainers", "research", "results"])
def test_a_first_page_says_in_ten_lines_what_to_read(folder: str) -> None:
    start = (DOCS / folder / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert 3 <= len(re.findall(r"^\d+\. \[", start, re.M)) <= 10


def test_every_first_page_is_linked_from_the_one_for_users_or_for_maintainers() -> None:
    firsts = [DOCS / "README.md", DOCS / "maintainers" / "README.md"]
    linked = {(page.parent / link).resolve() for page in firsts for link in links(page)}
    assert [name(page) for page in DOCS.rglob("README.md") if page not in {*linked, *firsts}] == []


def test_the_readme_states_measured_figures() -> None:
    """Each row of its table of budgets is one of docs/results/bench-real.md."""
    results = (DOCS / "results" / "bench-real.md").read_text(encoding="utf-8")
    nets = {"GPT-2": "gpt2", "BERT": "bert", "ResNet-50": "resnet50"}
    table = README.read_text(encoding="utf-8").partition("| training | tensors |")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.partition("\n\n")[0].splitlines()[2:]
    ]
    assert len(rows) == 6
    measured = ""
    for training, tensors, budget, tier, ratio in rows:
        if training:
            net = nets[training.split()[0]]
            measured = results.partition(f"\n## {net}\n")[2].partition("\n## ")[0]
            assert f"plain peak {tensors} of tensors" in measured
        fraction = re.fullmatch(r"([\d.]+) GB \((\d+) %\)", budget)
        assert fraction is not None
        case = f"| recoup{'+tier' if tier == 'yes' else ''} in {fraction[2]} % |"
        (row,) = [line for line in measured.splitlines() if line.startswith(case)]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert (cells[2], cells[6]) == (ratio, fraction[1]) and cells[-1] == "equal"


def test_the_page_of_choices_states_measured_figures() -> None:
    page = (DOCS / "choose.md").read_text(encoding="utf-8")
    results = DOCS / "results"
    alternatives = (DOCS / "research" / "alternatives.md").read_text(encoding="utf-8")
    compiled = (results / "compile.md").read_text(encoding="utf-8")
    generated = (results / "spilling.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.splitlines()
        if line.startswith("| ")
    ]
    found = 0
    for net, fraction, other, ours in (row for row in rows if len(row) == 4 and "%" in row[1]):
        other, ours = other.removesuffix("x"), ours.removesuffix("x")
        (block,) = re.findall(rf"^\| {net} \| ([^|]*) \|", alternatives, re.M)
        part = compiled.partition(f"\n**{net}**")[2].partition("\n**")[0]
        is_checkpoint = block.startswith(f"{fraction}: {other} / {ours} (")
        cells = f"{fraction.replace(' %', '%')} (as inductor-0.5) | {other} | {ours} |"
        assert is_checkpoint or cells in part, net
        found += 1
    assert found == 7
    times = [row[1] for row in rows if len(row) == 2 and row[1].endswith(" s")]
    assert len(times) == 3 and all(f"| {time} |" in generated for time in times)


def test_pages_name_the_installed_pytorch() -> None:
    pinned = re.findall(r"^torch==(.*)$", (ROOT / "requirements-torch.txt").read_text(), re.M)
    assert len(pinned) == 1
    for page in (README, DOCS / "limits.md"):
        assert f"PyTorch {pinned[0]}" in page.read_text(encoding="utf-8")
