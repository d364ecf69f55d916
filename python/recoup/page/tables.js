// Tables sort by a click on a column's name; rows below a module can be folded.

function rowsOf(table) {
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, below: [], folded: false }));
  const byId = new Map(rows.map((entry) => [entry.row.dataset.id, entry]));
  const roots = [];
  for (const entry of rows) {
    const { parent } = entry.row.dataset;
    (parent === undefined ? roots : byId.get(parent).below).push(entry);
  }
  return roots;
}

function arrange(table, roots) {
  const body = document.createDocumentFragment();
  const waiting = [...roots].reverse().map((entry) => [entry, false]);
  while (waiting.length) {
    const [entry, hidden] = waiting.pop();
    entry.row.hidden = hidden;
    body.append(entry.row);
    for (const below of [...entry.below].reverse()) waiting.push([below, hidden || entry.folded]);
  }
  table.tBodies[0].append(body);
}

function sortRows(rows, column, sign) {
  const value = (entry) => {
    const cell = entry.row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const waiting = [rows];
  while (waiting.length) {
    const siblings = waiting.pop();
    siblings.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (typeof left === "number" && typeof right === "number") return sign * (left - right);
      return sign * String(left).localeCompare(String(right), "en", { numeric: true });
    });
    for (const entry of siblings) if (entry.below.length) waiting.push(entry.below);
  }
}

function makeSortable(table, roots) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = element("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const first = head.classList.contains("n") ? "descending" : "ascending";
      const other = first === "descending" ? "ascending" : "descending";
      const order = head.getAttribute("aria-sort") === first ? other : first;
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      heads.forEach((each) => {
        const name = each.firstChild;
        name.textContent = name.textContent.replace(/ [▲▼]$/, "");
      });
      button.textContent += order === "ascending" ? " ▲" : " ▼";
      sortRows(roots, column, order === "ascending" ? 1 : -1);
      arrange(table, roots);
    });
  });
}

const MOST_ROWS = 40;

// Opens level by level as long as all rows fit on a screen or two.
function makeTree(table, roots) {
  let level = roots;
  let shown = roots.length;
  const all = [];
  while (level.length) {
    const next = level.flatMap((entry) => entry.below);
    shown += next.length;
    for (const entry of level) entry.folded = shown > MOST_ROWS;
    all.push(...level);
    level = next;
  }
  for (const entry of all) {
    const button = element("button", "", entry.below.length ? "fold" : "fold leaf");
    button.type = "button";
    const tell = () => {
      button.textContent = entry.folded ? "▸" : "▾";
      button.setAttribute("aria-expanded", String(!entry.folded));
    };
    button.setAttribute("aria-label", `modules below ${entry.row.cells[0].title}`);
    button.addEventListener("click", () => {
      entry.folded = !entry.folded;
      tell();
      arrange(table, roots);
    });
    tell();
    if (entry.below.length) entry.row.cells[0].lastChild.before(button);
    else entry.row.cells[0].lastChild.before(element("span", "", "in"));
  }
  arrange(table, roots);
}

function startTables() {
  for (const table of document.querySelectorAll("table")) {
    if (table.className === "pairs") continue;
    const roots = rowsOf(table);
    makeSortable(table, roots);
    if (table.className === "modules") makeTree(table, roots);
  }
}
