// Values over time: columns of numbers, and one pass over their changes for the visible part.

function running(differences) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < sums.length; i++) sums[i] = sum += differences[i];
  return sums;
}

function decodeStep(data) {
  const [spanBegin, spanLength, spanBytes, spanGroup] = data.spans;
  const begin = running(spanBegin);
  const end = begin.map((from, i) => from + spanLength[i]);
  const [kind, eventBegin, duration, bytes, name, group] = data.events;
  const step = {
    length: data.length,
    budget: data.budget,
    palette: data.palette,
    groups: data.groups.map(([module, kindIndex, op]) => ({
      module: data.modules[module], kind: data.kinds[kindIndex], op: data.ops[op],
    })),
    names: data.names,
    changes: sortChanges(begin, end, spanBytes, spanGroup),
    charged: { time: running(data.charged[0]), bytes: data.charged[1] },
    budgets: { time: running(data.budgets[0]), bytes: data.budgets[1] },
    events: { begin: running(eventBegin), duration, bytes, name, group },
    lanes: Object.keys(data.palette.events).map((text) => ({ kind: text, events: [] })),
  };
  kind.forEach((index, i) => step.lanes[index].events.push(i));
  addWeights(step, begin, end, spanBytes, spanGroup);
  return step;
}

// At each instant frees come before allocations.
function sortChanges(begin, end, bytes, group) {
  const count = begin.length;
  const byEnd = Uint32Array.from(begin, (_, i) => i).sort((a, b) => end[a] - end[b]);
  const changes = {
    time: new Float64Array(2 * count),
    bytes: new Float64Array(2 * count),
    group: new Uint32Array(2 * count),
  };
  let next = 0;
  let gone = 0;
  for (let at = 0; at < 2 * count; at++) {
    const goes = next === count || end[byEnd[gone]] <= begin[next];
    const span = goes ? byEnd[gone++] : next++;
    changes.time[at] = goes ? end[span] : begin[span];
    changes.bytes[at] = goes ? -bytes[span] : bytes[span];
    changes.group[at] = group[span];
  }
  return changes;
}

// Per group: bytes multiplied by time, and the first occurrence; ops come before values.
function addWeights(step, begin, end, bytes, group) {
  const weight = new Float64Array(step.groups.length);
  const first = new Float64Array(step.groups.length).fill(Infinity);
  step.events.group.forEach((index, i) => {
    if (index >= 0) first[index] = Math.min(first[index], step.events.begin[i]);
  });
  const late = step.length + 1;
  group.forEach((index, i) => {
    weight[index] += bytes[i] * (end[i] - begin[i]);
    if (first[index] > late + begin[i]) first[index] = late + begin[i];
  });
  Object.assign(step, { weight, first });
}

// For each of `width` columns of [from, to] the instant with the most bytes: its time, its total
// and the bytes of each series.
function sweep(step, seriesOf, count, from, to, width) {
  const { time, bytes, group } = step.changes;
  const held = new Float64Array(count);
  const values = new Float64Array(width * count);
  const totals = new Float64Array(width);
  const instants = new Float64Array(width);
  let total = 0;
  let i = 0;
  const applyAll = (until) => {
    for (; i < time.length && time[i] <= until; i++) {
      held[seriesOf[group[i]]] += bytes[i];
      total += bytes[i];
    }
  };
  applyAll(from);
  for (let column = 0; column < width; column++) {
    const begin = from + ((to - from) * column) / width;
    const end = from + ((to - from) * (column + 1)) / width;
    let best = -1;
    for (let at = begin; ; at = time[i]) {
      applyAll(at);
      if (total > best) {
        best = total;
        instants[column] = at;
        values.set(held, column * count);
      }
      if (i >= time.length || time[i] >= end) break;
    }
    totals[column] = best;
  }
  return { values, totals, instants, count };
}

// The bytes of each series at an instant.
function heldAt(step, seriesOf, count, instant) {
  const { time, bytes, group } = step.changes;
  const held = new Float64Array(count);
  for (let i = 0; i < time.length && time[i] <= instant; i++) held[seriesOf[group[i]]] += bytes[i];
  return held;
}

// The most bytes of each series at one instant of [from, to]. At an instant all changes count.
function mostHeld(step, seriesOf, count, from, to) {
  const { time, bytes, group } = step.changes;
  const most = heldAt(step, seriesOf, count, from);
  const held = most.slice();
  const keepMost = (series) => (most[series] = Math.max(most[series], held[series]));
  let i = 0;
  while (i < time.length && time[i] <= from) i++;
  while (i < time.length && time[i] <= to) {
    const first = i;
    for (; i < time.length && time[i] === time[first]; i++) held[seriesOf[group[i]]] += bytes[i];
    for (let at = first; at < i; at++) keepMost(seriesOf[group[at]]);
  }
  return most;
}

// The groups with the most bytes at an instant: [index, bytes], largest first.
function holders(step, instant, most) {
  const held = heldAt(step, step.groups.map((_, i) => i), step.groups.length, instant);
  const found = [];
  held.forEach((size, index) => size > 0 && found.push([index, size]));
  return found.sort((a, b) => b[1] - a[1]).slice(0, most);
}

// The maximum of a line (charges or budgets) in each column; NaN before its first point.
function sweepLine({ time, bytes }, from, to, width) {
  const found = new Float64Array(width).fill(NaN);
  let i = 0;
  let now = NaN;
  for (let column = 0; column < width; column++) {
    const begin = from + ((to - from) * column) / width;
    const end = from + ((to - from) * (column + 1)) / width;
    for (; i < time.length && time[i] <= begin; i++) now = bytes[i];
    found[column] = now;
    for (; i < time.length && time[i] < end; i++) {
      now = bytes[i];
      if (!(found[column] > now)) found[column] = now;
    }
  }
  return found;
}

// The value of a line at an instant; NaN before its first point.
function lineAt({ time, bytes }, instant) {
  let low = 0;
  let high = time.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time[middle] <= instant) low = middle + 1;
    else high = middle;
  }
  return low ? bytes[low - 1] : NaN;
}

// The first instant of [from, to] with the most charged bytes, or, if charges are not known, with
// the most bytes in spans.
function highestInstant(step, from, to) {
  const { time, bytes } = step.charged;
  if (!time.length) return sweep(step, new Uint32Array(step.groups.length), 1, from, to, 1).instants[0];
  let instant = from;
  let most = lineAt(step.charged, from);
  for (let i = 0; i < time.length && time[i] <= to; i++) {
    if (time[i] > from && !(bytes[i] <= most)) [instant, most] = [time[i], bytes[i]];
  }
  return instant;
}

// Indices of the series, by the most bytes of each in the step, largest first.
function largestFirst(step, series) {
  const most = mostHeld(step, series.of, series.names.length, 0, step.length);
  return series.names.map((_, i) => i).sort((a, b) => most[b] - most[a]);
}

function prefix(module, depth, outside) {
  return module === "" ? outside : module.split(".").slice(0, depth).join(".");
}

// The series of a picture: their names and colours, and the series of each group.
function kindSeries(step) {
  const used = new Set(step.groups.map((group) => group.kind));
  const names = Object.keys(step.palette.kinds).filter((kind) => used.has(kind));
  return {
    names,
    colours: names.map((kind) => step.palette.kinds[kind]),
    of: Uint32Array.from(step.groups, (group) => names.indexOf(group.kind)),
  };
}

const MOST_SERIES = 32;
const FEW_SERIES = 5;

function moduleSeries(step, depth) {
  const { outside } = step.palette;
  const found = new Map();
  step.groups.forEach((group, i) => {
    const name = prefix(group.module, depth, outside);
    const at = found.get(name) ?? { name, weight: 0, first: Infinity };
    at.weight += step.weight[i];
    at.first = Math.min(at.first, step.first[i]);
    found.set(name, at);
  });
  const rest = found.get(outside);
  found.delete(outside);
  const largest = [...found.values()].sort((a, b) => b.weight - a.weight);
  const shown = largest.slice(0, MOST_SERIES).sort((a, b) => (a.first < b.first ? -1 : 1));
  const names = shown.map((series) => series.name);
  const colours = names.map((_, i) => viridis(step, (i + 0.5) / names.length));
  const others = largest.length - shown.length;
  if (others) names.push(`${countText(others)} smaller modules`);
  if (rest) names.push(outside);
  while (colours.length < names.length) colours.push(colours.length === shown.length ? "#999999" : "#c4c4c4");
  const index = new Map(shown.map((series, i) => [series.name, i]));
  if (rest) index.set(outside, names.length - 1);
  const of = Uint32Array.from(
    step.groups, (group) => index.get(prefix(group.module, depth, outside)) ?? shown.length,
  );
  return { names, colours, of };
}

function viridis(step, fraction) {
  const stops = step.palette.modules;
  const at = (0.06 + 0.9 * fraction) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const part = (stop, i) => parseInt(stops[stop].slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(part(low, i) + (at - low) * (part(low + 1, i) - part(low, i))));
  return `rgb(${mixed.join(", ")})`;
}

// The deepest level of names at which all names can be shown, unless a deeper one is needed to have
// more than a few; and the deepest level that exists.
function depths(step) {
  const modules = [...new Set(step.groups.map((group) => group.module))];
  const deepest = modules.reduce((most, module) => Math.max(most, module.split(".").length), 1);
  const last = Math.min(12, deepest);
  const count = (depth) => new Set(modules.map((module) => prefix(module, depth, ""))).size;
  let chosen = 1;
  while (chosen < last && (count(chosen + 1) <= MOST_SERIES || count(chosen) < FEW_SERIES)) chosen++;
  return { deepest: last, chosen };
}
