// Connects the chart to the pointer, the keys, the controls, the legend and the tooltip.

const by = (id) => document.getElementById(id);

function startChart(step) {
  const chart = new Chart(step);
  startControls(chart);
  startPointer(chart);
  startKeys(chart);
  chart.onDrawn = () => {
    tellLegend(chart);
    if (chart.cursor >= 0) tellCursor(chart);
  };
  new ResizeObserver(() => chart.redraw()).observe(by("plot"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart.redraw());
  chart.draw();
}

function startControls(chart) {
  const { step } = chart;
  const { deepest, chosen } = depths(step);
  for (let depth = 1; depth <= deepest; depth++) by("depth").add(new Option(String(depth), String(depth)));
  by("depth").value = String(chosen);
  const choose = () => {
    const kinds = document.querySelector("[name=mode]:checked").value === "kind";
    by("depth-label").hidden = kinds;
    chart.setSeries(kinds ? kindSeries(step) : moduleSeries(step, Number(by("depth").value)));
  };
  by("depth").addEventListener("change", choose);
  document.querySelectorAll("[name=mode]").forEach((mode) => mode.addEventListener("change", choose));
  choose(); // a browser may have restored earlier choices
  by("zoom-in").addEventListener("click", () => chart.zoom(0.5));
  by("zoom-out").addEventListener("click", () => chart.zoom(2));
  by("zoom-reset").addEventListener("click", () => chart.show(0, step.length));
}

function startPointer(chart) {
  const { over } = chart;
  let pressed = null; // the start of a drag
  const columnOf = (event) => {
    const at = event.clientX - over.getBoundingClientRect().left - SPACE.left;
    return Math.min(chart.columns - 1, Math.max(0, Math.floor(at)));
  };
  over.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = { column: columnOf(event), shifts: event.shiftKey, view: chart.view };
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    const column = columnOf(event);
    if (pressed?.shifts) {
      const { from, to } = pressed.view;
      chart.view = pressed.view;
      chart.shift((pressed.column - column) / chart.columns);
      if (from === chart.view.from && to === chart.view.to) chart.redraw();
      return;
    }
    moveCursor(chart, column, pressed && [pressed.column, column].sort((a, b) => a - b));
  });
  over.addEventListener("pointerup", (event) => {
    if (pressed && !pressed.shifts) {
      const [from, to] = [pressed.column, columnOf(event)].sort((a, b) => a - b);
      const wide = (chart.view.to - chart.view.from) / chart.columns;
      if (to - from > 3) chart.show(chart.view.from + wide * from, chart.view.from + wide * to);
      else chart.drawCursor();
    }
    pressed = null;
  });
  over.addEventListener("pointercancel", () => {
    pressed = null;
    chart.drawCursor();
  });
  over.addEventListener("pointerleave", () => moveCursor(chart, -1));
  over.addEventListener("dblclick", () => chart.show(0, chart.step.length));
  over.addEventListener("wheel", (event) => wheel(chart, event, columnOf(event)), { passive: false });
}

function wheel(chart, event, column) {
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    if (chart.whole) return;
    event.preventDefault();
    chart.shift((event.deltaX * unit) / chart.columns);
    return;
  }
  if (chart.whole && event.deltaY > 0) return; // it cannot zoom out: let the page scroll
  event.preventDefault();
  chart.zoom(1.0015 ** (event.deltaY * unit), column);
}

function startKeys(chart) {
  const { over } = chart;
  over.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 25 : 1;
    const from = chart.cursor < 0 ? Math.floor(chart.columns / 2) : chart.cursor;
    const keys = {
      ArrowLeft: () => moveCursor(chart, Math.max(0, from - far)),
      ArrowRight: () => moveCursor(chart, Math.min(chart.columns - 1, from + far)),
      "+": () => chart.zoom(0.5, from),
      "=": () => chart.zoom(0.5, from),
      "-": () => chart.zoom(2, from),
      PageUp: () => chart.shift(-0.5),
      PageDown: () => chart.shift(0.5),
      Home: () => chart.show(0, chart.step.length),
      Escape: () => moveCursor(chart, -1),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  over.addEventListener("blur", () => moveCursor(chart, -1));
}

let cursorWaits = false;

function moveCursor(chart, column, dragged = null) {
  chart.cursor = column;
  if (cursorWaits) return;
  cursorWaits = true;
  requestAnimationFrame(() => {
    cursorWaits = false;
    chart.drawCursor(dragged);
    tellLegend(chart);
    if (chart.cursor >= 0) tellCursor(chart);
    else by("hover").hidden = true;
  });
}

function tellLegend(chart) {
  const { series, swept } = chart;
  const follows = chart.cursor >= 0 && chart.cursor < swept.totals.length;
  const { moment, values, charged, budget } = follows ? chart.at(chart.cursor) : chart.mostShown();
  by("legend-title").textContent = legendTitle(chart, follows, moment);
  const rows = chart.order.map((i) => {
    const row = legendRow(series.names[i], formatBytes(values[i]), series.colours[i], "");
    row.dataset.bytes = values[i];
    row.addEventListener("pointerenter", () => light(chart, i));
    row.addEventListener("pointerleave", () => light(chart, -1));
    return row;
  });
  const old = by("legend-rows");
  const { colours } = chart.picture;
  const lines = [];
  if (budget > 0) lines.push(legendRow("budget", formatBytes(budget), colours.budget, "line dashed"));
  if (!Number.isNaN(charged)) {
    lines.push(legendRow("all charged memory", formatBytes(charged), colours.text, "line"));
    const rest = charged - values.reduce((sum, size) => sum + size, 0);
    if (follows && rest > 0) lines.push(legendRow("workspace", formatBytes(rest), "transparent", ""));
  }
  // Rows stay while the pointer is on one: a new row would report that the pointer entered it.
  if (!old.matches(":hover")) old.replaceChildren(...lines, ...rows);
}

function legendTitle(chart, follows, moment) {
  if (follows) return `At ${moment}; ordered by the most bytes of each`;
  if (chart.whole) return "The most bytes of each in the step; largest first";
  return "The most bytes of each in the part shown; ordered as in the step";
}

function light(chart, index) {
  chart.lit = index;
  chart.redraw();
}

function legendRow(name, size, colour, line) {
  const row = element("li");
  const mark = element("i", "", line);
  mark.style[line ? "borderTopColor" : "backgroundColor"] = colour;
  const text = element("span");
  text.append(element("bdi", name));
  text.title = name;
  row.append(mark, text, element("b", size));
  return row;
}

function tellCursor(chart) {
  const { step } = chart;
  const column = Math.min(chart.cursor, chart.columns - 1);
  const found = chart.at(column);
  const box = by("hover");
  const head = Number.isNaN(found.charged) ? `${formatBytes(found.total)} held` : `${formatBytes(found.charged)} charged`;
  const percent = found.budget > 0 && !Number.isNaN(found.charged) ? `, ${percentText(found.charged, found.budget)} of the budget` : "";
  const lines = [element("p", `${found.moment}: ${head}${percent}`, "head")];
  holders(step, found.instant, 5).forEach(([index, size], i) => {
    const { module, kind, op } = step.groups[index];
    const line = element("p", "", i ? "row" : "row gap");
    const swatch = element("i");
    swatch.style.backgroundColor = chart.series.colours[chart.series.of[index]];
    line.append(swatch, element("span", [module || step.palette.outside, kind, op].filter(Boolean).join(" · ")), element("b", formatBytes(size)));
    lines.push(line);
  });
  let first = true;
  for (const lane of found.lanes) {
    if (!lane.inside.length) continue;
    lines.push(element("p", tellLane(step, lane), first ? "gap" : ""));
    first = false;
  }
  box.replaceChildren(...lines);
  box.hidden = false;
  const room = by("plot").clientWidth;
  const x = SPACE.left + column;
  const left = x + 14 + box.offsetWidth <= room ? x + 14 : Math.max(0, x - 14 - box.offsetWidth);
  box.style.transform = `translate(${left}px, ${SPACE.top + 8}px)`;
}

function tellLane(step, { kind, inside, bytes }) {
  const { name, duration, group } = step.events;
  const [first] = inside;
  const module = group[first] >= 0 ? step.groups[group[first]].module : "";
  const what = [step.names[name[first]], module].filter(Boolean).join(" in ");
  const more = inside.length > 1 ? `; ${countText(inside.length - 1)} more here` : "";
  if (kind === "op" || kind === "replay") return `${kind}: ${what}, ${formatNs(duration[first])}${more}`;
  return `${kind}: ${formatBytes(bytes)}${what ? `, ${what}` : ""}${more}`;
}

startTables();
const embedded = JSON.parse(by("data").textContent);
if (embedded) {
  by("still").hidden = true;
  by("chart").hidden = false;
  try {
    startChart(decodeStep(embedded));
  } catch (error) {
    by("still").hidden = false;
    by("chart").hidden = true;
    throw error;
  }
}
