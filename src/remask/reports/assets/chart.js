// What all charts share: scales, a frame with axes, markers, a legend.

function scale([from, to], [start, end]) {
  return (value) => start + ((value - from) / (to - from)) * (end - start);
}

function stepFor(span, count) {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough);
}

const LEAST_RANGE = 2; // points

// The range of an axis of percentages that holds all values, with round ends.
function roundRange(values, count = 4) {
  const known = values.filter(Number.isFinite);
  if (!known.length) return { range: [0, 100], ticks: [0, 25, 50, 75, 100] };
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const apart = Math.max(0, LEAST_RANGE - (most - least)) / 2; // differences that are nothing look it
  const low = Math.max(0, least - apart);
  const high = Math.min(100, most + apart);
  const step = stepFor(high - low, count);
  const from = Math.floor(low / step + 1e-9) * step;
  const to = Math.min(100, Math.ceil(high / step - 1e-9) * step);
  const ticks = [];
  for (let tick = from; tick <= to + step / 1000; tick += step) ticks.push(Number(tick.toFixed(6)));
  return { range: [from, to], ticks };
}

// Axes and grid. `x.ticks` are { at, text } in pixels; `y` is what roundRange returns. `below` is the
// room for names that are too long to stand side by side; with it they slant.
function frame({ width, height: ofChart, label, x, y, yTitle, xTitle, top = 24, below = 0 }) {
  const height = ofChart + below;
  const box = { left: 40, right: width - 10, top, bottom: ofChart - 40 };
  const yAt = scale(y.range, [box.bottom, box.top]);
  const digits = y.ticks.some((tick) => !Number.isInteger(tick)) ? 1 : 0;
  const chart = svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, width, height,
    tabindex: "0", role: "group", "aria-roledescription": "chart",
    "aria-label": `${label}. The arrow keys read its values.`,
  });
  chart.append(
    svg("g", { class: "grid" }, y.ticks.map((tick) =>
      svg("path", { d: `M${box.left} ${yAt(tick).toFixed(1)}H${box.right}` }))),
    svg("g", { class: "ticks y" }, y.ticks.map((tick) =>
      svg("text", { x: box.left - 7, y: yAt(tick) + 4 }, written(tick, digits)))),
    svg("text", { class: "axis-title", x: 0, y: 11 }, yTitle),
    svg("text", { class: "axis-title x", x: (box.left + box.right) / 2, y: height - 5 }, xTitle),
    svg("path", { class: "axis", d: `M${box.left} ${box.bottom}H${box.right}` }),
  );
  const xAt = x(box); // what is along the bottom depends on the chart
  const slanted = (tick) => ({
    class: "slanted", transform: `translate(${(tick.at + 4).toFixed(1)} ${box.bottom + 12}) rotate(${-SLANT})`,
  });
  const widest = below ? SLANTED_WIDTH : widthOf(xAt.ticks.map((tick) => tick.text));
  chart.append(svg("g", { class: "ticks x" }, thinned(xAt.ticks, box, widest).map((tick) =>
    svg("text", below ? slanted(tick) : { x: tick.at, y: box.bottom + 17 }, tick.text))));
  return { chart, box, xAt, yAt };
}

const SLANT = 40; // degrees
const SLANTED_WIDTH = 18;

// About how many pixels the longest of the texts takes, with a gap.
function widthOf(texts) {
  return Math.max(...texts.map((text) => text.length)) * 7 + 8;
}

// As many labels as fit.
function thinned(ticks, box, widest) {
  const every = Math.ceil((ticks.length * widest) / (box.right - box.left + widest));
  return ticks.filter((_, index) => index % every === 0);
}

// Evenly spaced names along the bottom.
function places(names) {
  return (box) => {
    const step = (box.right - box.left) / names.length;
    const at = (index) => box.left + step * (index + 0.5);
    at.step = step;
    at.ticks = names.map((text, index) => ({ at: at(index), text }));
    return at;
  };
}

function measuredAxis({ range, ticks }) {
  return (box) => {
    const at = scale(range, [box.left, box.right]);
    const digits = ticks.some((tick) => !Number.isInteger(tick)) ? 1 : 0;
    at.ticks = ticks.map((tick) => ({ at: at(tick), text: written(tick, digits) }));
    return at;
  };
}

const MARKER_PATHS = {
  circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  square: (r) => `M${-r * 0.9} ${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  triangle: (r) => `M0 ${-r * 1.2}L${r * 1.1} ${r * 0.8}H${-r * 1.1}z`,
  diamond: (r) => `M0 ${-r * 1.3}L${r * 1.15} 0L0 ${r * 1.3}L${-r * 1.15} 0z`,
  cross: (r) => `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`,
  plus: (r) => `M${-r * 1.2} 0H${r * 1.2}M0 ${-r * 1.2}V${r * 1.2}`,
  down: (r) => `M0 ${r * 1.2}L${r * 1.1} ${-r * 0.8}H${-r * 1.1}z`,
  ring: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
};

function marker(shape, x, y, radius = 4) {
  const hollow = ["cross", "plus", "ring"].includes(shape) ? " hollow" : "";
  return svg("path", {
    class: `marker${hollow}`,
    d: MARKER_PATHS[shape](radius),
    transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`,
  });
}

// A line through the points that are there; a missing one is a gap.
function lineThrough(points) {
  let pen = "M";
  return points.map((point) => {
    if (!point) {
      pen = "M";
      return "";
    }
    const part = `${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`;
    pen = "L";
    return part;
  }).join("");
}

function sampleOf(colour, ...parts) {
  const size = { viewBox: "0 0 30 12", width: 30, height: 12 };
  return svg("svg", { class: `swatch ${colour}`, ...size, "aria-hidden": "true" }, parts);
}

function swatch(label) {
  const look = lookOf(label);
  return sampleOf(look.colour,
    svg("path", { class: "line", d: "M1 6H29", "stroke-dasharray": look.dash }),
    marker(look.marker, 15, 6, 3.6));
}

// Pointing at an entry brings its lines forward.
function legend(labels) {
  const emphasise = (event, label) => {
    for (const series of event.target.closest("figure").querySelectorAll("[data-series]")) {
      series.classList.toggle("faded", label !== null && series.dataset.series !== label);
    }
  };
  return html("ul", { class: "legend" }, labels.map((label) =>
    html("li", {
      onpointerenter: (event) => emphasise(event, label),
      onpointerleave: (event) => emphasise(event, null),
    }, swatch(label), label)));
}
