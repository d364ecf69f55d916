// The chart and its state: the visible part of the step, the series, and the values at the cursor.

class Chart {
  constructor(step) {
    this.step = step;
    this.view = { from: 0, to: Math.max(1, step.length) };
    this.cursor = -1; // a column; -1: none
    this.lit = -1; // the highlighted series; -1: none
    this.base = document.getElementById("base");
    this.over = document.getElementById("over");
    this.lanes = step.lanes.filter(({ kind, events }) => kind === "op" || kind === "replay" || events.length);
    this.mostBytes = step.events.bytes.reduce((most, size) => Math.max(most, size), 1);
    this.waiting = false;
    this.setSeries(moduleSeries(step, depths(step).chosen));
  }

  setSeries(series) {
    this.series = series;
    this.order = largestFirst(this.step, series);
    this.lit = -1;
    this.swept = null;
    this.redraw();
  }

  get columns() {
    return Math.max(50, Math.floor(this.base.clientWidth) - SPACE.left - SPACE.right);
  }

  // Shows a part of the step: at least 100 ns, at most the whole step.
  show(from, to) {
    const length = Math.max(1, this.step.length);
    const wide = Math.min(length, Math.max(to - from, Math.min(100, length)));
    const begin = Math.min(Math.max(0, (from + to - wide) / 2), length - wide);
    this.view = { from: begin, to: begin + wide };
    this.swept = null;
    this.redraw();
  }

  zoom(factor, column = this.columns / 2) {
    const { from, to } = this.view;
    const at = from + ((to - from) * column) / this.columns;
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }

  shift(fraction) {
    const { from, to } = this.view;
    const by = (to - from) * fraction;
    const length = Math.max(1, this.step.length);
    const moved = Math.min(Math.max(by, -from), length - to);
    this.show(from + moved, to + moved);
  }

  get whole() {
    return this.view.to - this.view.from >= this.step.length;
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw() {
    const { step, series, view } = this;
    const columns = this.columns;
    if (!this.swept || this.swept.totals.length !== columns) {
      this.swept = sweep(step, series.of, series.names.length, view.from, view.to, columns);
      this.charged = sweepLine(step.charged, view.from, view.to, columns);
      this.budgets = sweepLine(step.budgets, view.from, view.to, columns);
    }
    this.top ??= this.highest();
    const width = columns + SPACE.left + SPACE.right;
    const totalHeight = laneTop(this.lanes.length);
    const scale = 1.04 * this.top.shown;
    const style = getComputedStyle(document.querySelector(".recoup-page"));
    const colours = Object.fromEntries(
      ["back", "text", "grid", "budget", "soft", "tint"].map((name) => [name, style.getPropertyValue(`--${name}`)]),
    );
    this.picture = {
      step, series, view, width, totalHeight, colours, lanes: this.lanes, lit: this.lit, swept: this.swept,
      charged: this.charged, budgets: this.budgets, mostBytes: this.mostBytes, top: scale, budgetShown: this.top.budgetShown,
      height: (size) => SPACE.top + SPACE.height * (1 - size / scale),
    };
    paint(this.resized(this.base, width, totalHeight), this.picture);
    this.drawCursor();
    const apart = (view.to - view.from) / 100;
    const shown = `${timeText(view.from, apart)} to ${timeText(view.to, apart)} of `;
    document.getElementById("range").textContent = `${this.whole ? "" : shown}${formatNs(step.length)}`;
    this.onDrawn?.();
  }

  // One height for all parts of a step, so that they can be compared.
  highest() {
    const all = sweep(this.step, new Uint32Array(this.step.groups.length), 1, 0, Math.max(1, this.step.length), 1);
    const used = this.step.charged.bytes.reduce((most, size) => Math.max(most, size), Math.max(1, all.totals[0]));
    const budget = this.step.budgets.bytes.reduce((most, size) => Math.max(most, size), 0);
    // A budget far above the bytes in use would flatten the picture.
    const budgetShown = budget <= 3 * used;
    return { shown: budgetShown ? Math.max(used, budget) : used, budgetShown };
  }

  resized(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.setTransform(canvas.width / width, 0, 0, ratio, 0, 0);
    return context;
  }

  // The line at the cursor, and the area of a drag.
  drawCursor(dragged = null) {
    const { width, totalHeight, colours } = this.picture;
    const context = this.resized(this.over, width, totalHeight);
    if (dragged) {
      context.fillStyle = colours.tint;
      context.fillRect(SPACE.left + dragged[0], SPACE.top, dragged[1] - dragged[0], totalHeight - SPACE.top);
      context.strokeStyle = colours.text;
      context.strokeRect(SPACE.left + dragged[0] + 0.5, SPACE.top + 0.5, dragged[1] - dragged[0], totalHeight - SPACE.top - 1);
    }
    if (this.cursor >= 0 && this.cursor < this.columns) {
      context.fillStyle = colours.text;
      context.fillRect(SPACE.left + this.cursor, SPACE.top, 1, totalHeight - SPACE.top);
    }
  }

  // The most bytes of each series in the visible part; charges and budget at its highest point.
  mostShown() {
    const { step, series, view } = this;
    const instant = highestInstant(step, view.from, view.to);
    return {
      charged: lineAt(step.charged, instant),
      budget: lineAt(step.budgets, instant),
      values: mostHeld(step, series.of, series.names.length, view.from, view.to),
    };
  }

  // The data of a column: its instant, bytes by series, and its events by lane.
  at(column) {
    const { view, swept } = this;
    const wide = (view.to - view.from) / this.columns;
    const [from, to] = [view.from + wide * column, view.from + wide * (column + 1)];
    const { begin, duration, bytes } = this.step.events;
    const lanes = this.lanes.map(({ kind, events }) => {
      const inside = events.filter((i) => begin[i] < to && begin[i] + duration[i] >= from);
      inside.sort((a, b) => duration[b] - duration[a]);
      return { kind, inside, bytes: inside.reduce((sum, i) => sum + bytes[i], 0) };
    });
    const instant = swept.instants[column];
    return {
      instant,
      moment: timeText(instant, wide),
      total: swept.totals[column],
      charged: lineAt(this.step.charged, instant),
      budget: lineAt(this.step.budgets, instant),
      values: swept.values.subarray(column * swept.count, (column + 1) * swept.count),
      lanes,
    };
  }
}
