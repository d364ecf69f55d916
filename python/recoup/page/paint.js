// Paints the chart: memory at the top, lanes of events below, with a common time axis.

const SPACE = { left: 86, right: 14, top: 20, height: 320, axis: 26, lane: 17, gap: 5 };
const LANES = { op: "ops", replay: "replays", evict: "evictions", spill: "spills", fetch: "fetches", move: "moves" };

function paint(context, picture) {
  const { width, totalHeight } = picture;
  context.clearRect(0, 0, width, totalHeight);
  context.font = "11.5px system-ui, sans-serif";
  paintAxes(context, picture);
  paintStack(context, picture);
  paintLines(context, picture);
  picture.lanes.forEach((lane, i) => paintLane(context, picture, lane, laneTop(i)));
}

function laneTop(index) {
  return SPACE.top + SPACE.height + SPACE.axis + index * (SPACE.lane + SPACE.gap);
}

function steps125(span, most) {
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= rough);
}

function paintAxes(context, { colours, width, height, view, top }) {
  context.strokeStyle = colours.grid;
  context.fillStyle = colours.soft;
  context.lineWidth = 1;
  const step = Math.max(1, 2 ** Math.ceil(Math.log2(top / 8)));
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let size = 0; size <= top; size += step) {
    const y = Math.round(height(size)) + 0.5;
    context.beginPath();
    context.moveTo(SPACE.left, y);
    context.lineTo(width - SPACE.right, y);
    context.stroke();
    context.fillText(formatBytes(size), SPACE.left - 8, y);
  }
  const plot = width - SPACE.left - SPACE.right;
  const apart = Math.max(1, steps125(view.to - view.from, Math.max(2, plot / 110)));
  const instants = [];
  for (let i = Math.ceil(view.from / apart); i * apart <= view.to; i++) instants.push(i * apart);
  context.textAlign = "center";
  context.textBaseline = "top";
  timeLabels(instants, apart).forEach((label, i) => {
    const x = SPACE.left + ((instants[i] - view.from) / (view.to - view.from)) * plot;
    context.fillRect(Math.round(x), SPACE.top + SPACE.height, 1, 4);
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.min(x, width - half), SPACE.top + SPACE.height + 7);
  });
}

function paintStack(context, { colours, series, swept, height, lit }) {
  const { values, totals, count } = swept;
  const lower = new Float64Array(totals.length);
  const upper = new Float64Array(totals.length);
  for (let index = 0; index < count; index++) {
    let any = false;
    for (let column = 0; column < totals.length; column++) {
      const size = values[column * count + index];
      any ||= size > 0;
      upper[column] = lower[column] + size;
    }
    if (any) {
      context.globalAlpha = lit < 0 || lit === index ? 1 : 0.22;
      context.fillStyle = series.colours[index];
      context.beginPath();
      edge(context, upper, height, false);
      edge(context, lower, height, true);
      context.fill();
      context.globalAlpha = 0.55;
      context.strokeStyle = colours.back;
      context.lineWidth = 0.7;
      context.beginPath();
      edge(context, upper, height, false);
      context.stroke();
    }
    lower.set(upper);
  }
  context.globalAlpha = 1;
}

// Draws along the columns, or backward.
function edge(context, sizes, height, back) {
  for (let i = 0; i < sizes.length; i++) {
    const column = back ? sizes.length - 1 - i : i;
    const x = SPACE.left + column;
    const y = height(sizes[column]);
    context.lineTo(back ? x + 1 : x, y);
    context.lineTo(back ? x : x + 1, y);
  }
}

// Draws the size of each column; skips NaN.
function paintLine(context, sizes, height) {
  context.beginPath();
  let pen = false;
  sizes.forEach((size, column) => {
    if (Number.isNaN(size)) return;
    const y = height(size);
    if (pen) context.lineTo(SPACE.left + column, y);
    else context.moveTo(SPACE.left + column, y);
    context.lineTo(SPACE.left + column + 1, y);
    pen = true;
  });
  context.stroke();
}

function paintLines(context, { colours, charged, budgets, height, step, budgetShown, width }) {
  context.strokeStyle = colours.text;
  context.lineWidth = 1.3;
  paintLine(context, charged, height);
  if (!step.budget) return;
  context.fillStyle = colours.budget;
  context.textAlign = "right";
  context.textBaseline = "bottom";
  const text = `budget ${formatBytes(step.budget)}`;
  if (!budgetShown) {
    context.fillText(`${text}, above this chart`, width - SPACE.right, SPACE.top - 3);
    return;
  }
  const rounded = (size) => Math.round(height(size)) + 0.5;
  context.strokeStyle = colours.budget;
  context.setLineDash([6, 4]);
  context.lineWidth = 1.5;
  paintLine(context, budgets, rounded);
  context.setLineDash([]);
  context.fillText(text, width - SPACE.right, rounded(step.budget) - 3);
}

function paintLane(context, picture, lane, top) {
  const { colours, width, view, step, series } = picture;
  const plot = width - SPACE.left - SPACE.right;
  const { begin, duration, group } = step.events;
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(LANES[lane.kind], SPACE.left - 8, top + SPACE.lane / 2);
  context.fillStyle = colours.tint;
  context.fillRect(SPACE.left, top, plot, SPACE.lane);
  const scale = plot / (view.to - view.from);
  const largest = new Float64Array(plot);
  let painted = -1; // the last column that is filled
  for (const i of lane.events) {
    const from = (begin[i] - view.from) * scale;
    const to = from + duration[i] * scale;
    if (to < 0 || from >= plot) continue;
    const left = Math.max(0, from);
    const right = Math.min(plot, to);
    if (lane.kind === "op" || lane.kind === "replay") {
      if (Math.floor(right) <= painted) continue;
      const own = lane.kind === "op" && group[i] >= 0;
      context.fillStyle = own ? series.colours[series.of[group[i]]] : step.palette.events[lane.kind];
      context.fillRect(SPACE.left + left, top, Math.max(1, right - left - (right - left > 4 ? 0.6 : 0)), SPACE.lane);
      painted = Math.floor(right);
    } else {
      const column = Math.min(plot - 2, Math.floor(left)); // a mark is two columns wide
      largest[column] = Math.max(largest[column], 1 + step.events.bytes[i]);
    }
  }
  paintMarks(context, picture, largest, step.palette.events[lane.kind], top);
}

// The height of a mark shows its bytes; an area could not, at a width of two pixels.
function paintMarks(context, { mostBytes }, largest, colour, top) {
  context.fillStyle = colour;
  largest.forEach((size, column) => {
    if (!size) return;
    const tall = SPACE.lane * (0.3 + 0.7 * Math.sqrt((size - 1) / mostBytes));
    context.fillRect(SPACE.left + column, top + SPACE.lane - tall, 2, tall);
  });
}
