"use strict";
// Sizes, times, counts and fractions as Python writes them: recoup._memory.sizes.format_bytes,
// recoup._reporting.report.format_ns, and count_text and percent of recoup.page.texts.

// toFixed that rounds a tie to the even neighbour, as Python does.
function fixed(value, digits) {
  const middle = value * 2 ** (digits + 1); // exact; an odd integer for a tie
  if (Number.isInteger(middle) && middle % 2 === 1) {
    const scale = 10 ** digits;
    const low = Math.floor(value * scale);
    return ((low % 2 === 0 ? low : low + 1) / scale).toFixed(digits);
  }
  return value.toFixed(digits);
}

function formatBytes(count) {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = count / 1024;
  let unit = 0;
  while (unit < units.length - 1 && size >= 1023.5) {
    size /= 1024;
    unit += 1;
  }
  return `${fixed(size, size >= 99.95 ? 0 : 1)} ${units[unit]}`;
}

function formatNs(duration) {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (duration >= scale) return `${fixed(duration / scale, 2)} ${unit}`;
  }
  return `${Math.round(duration)} ns`;
}

function countText(count) {
  return count.toLocaleString("en");
}

function percentText(part, whole) {
  return `${fixed((100 * part) / whole, 1)} %`;
}

// Labels of instants on one axis: all in the unit of the last, with digits for their distance.
function timeLabels(instants, apart) {
  const last = instants.length ? instants[instants.length - 1] : 0;
  const [unit, scale] = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]].find(
    ([, size]) => last >= size || size === 1,
  );
  const digits = Math.max(0, Math.ceil(Math.log10(scale / apart) - 1e-9));
  return instants.map((instant) => `${(instant / scale).toFixed(digits)} ${unit}`);
}

// A label of one instant, with digits to distinguish it from one that is `apart` from it.
function timeText(instant, apart) {
  return instant ? timeLabels([instant], apart)[0] : "0 ns";
}

// An element with text, which is never parsed as HTML.
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}
