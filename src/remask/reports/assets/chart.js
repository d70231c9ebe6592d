// Draws a panel of a figure's description (see remask.reports.figures.description): axes and marks.

const LEAST_RANGE = 2; // points, so that negligible differences look negligible

// As round_range in Python: the range with round ends that holds all values, and its ticks.
function roundRange(values, plain = false) {
  if (!values.length) return { range: [0, 100], ticks: [0, 25, 50, 75, 100] };
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const limit = plain ? Infinity : 100;
  const apart = Math.max(0, (plain ? 0.1 : LEAST_RANGE) - (most - least)) / 2;
  const [low, high] = [Math.max(0, least - apart), Math.min(limit, most + apart)];
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough);
  const from = Math.floor(low / step + 1e-9) * step;
  const to = Math.min(limit, Math.ceil(high / step - 1e-9) * step);
  const count = Math.round((to - from) / step) + 1;
  return { range: [from, to], ticks: Array.from({ length: count }, (_, n) => Number((from + n * step).toFixed(6))) };
}

// The values that an axis must hold.
function endsOf(marks, values = "y", stds = "std") {
  return marks.flatMap((mark) => mark[values].flatMap((value, index) =>
    value === null ? [] : [value - (mark[stds][index] ?? 0), value + (mark[stds][index] ?? 0)]));
}

// From a value to a pixel; `ticks` are { at, text }, `step` is the width of a place.
function scaled(axis, { range, ticks }, [start, end]) {
  const [from, to] = range;
  const at = (value) => start + ((value - from) / (to - from)) * (end - start);
  at.range = range;
  at.inside = (value) => at(Math.max(range[0], Math.min(range[1], value)));
  at.step = Math.abs(end - start) / (to - from);
  const digits = ticks.some((tick) => !Number.isInteger(tick)) ? 1 : 0;
  at.ticks = ticks.map((tick) => ({ at: at(tick), text: axis.places[tick] ?? written(tick, digits) }));
  return at;
}

function placed(axis) {
  return { range: [-0.5, axis.places.length - 0.5], ticks: axis.places.map((_, place) => place) };
}

// `shown` are the marks to draw, `together` those that share the vertical range.
function drawPanel(panel, { shown, together, width, height, low }) {
  if (panel.y.places.length) return heatMap(panel, shown, width, low);
  const below = roomBelow(panel.x.places, width);
  const chart = emptyChart(width, height + below, `${panel.title}: ${panel.y.title}`);
  const box = { left: 40, right: width - 10, top: panel.x.spans.length || panel.guides.length ? 40 : 24, bottom: height - 40 };
  const y = roundRange(endsOf(together), panel.y.plain);
  const x = panel.x.places.length ? placed(panel.x) : roundRange(endsOf(shown, "x", "x_std"));
  const at = {
    x: scaled(panel.x, x, [box.left, box.right]), y: scaled(panel.y, y, [box.bottom, box.top]),
    box, panel, radius: (size) => 3.5 + (3.5 * size) / Math.max(1, panel.sizes.length - 1),
  };
  chart.append(shadesOf(panel.x.spans, at), ...axesOf(at, width, height + below, below), ...guidesOf(at));
  const others = panel.x.places.length ? [] : drawOthers(panel.marks.filter((mark) => !shown.includes(mark)), chart, at);
  const lines = shown.filter((mark) => mark.kind === "line" || mark.kind === "points");
  at.apart = panel.std_as === "bars" && at.x.step >= 9 ? Math.min(5, (0.6 * at.x.step) / lines.length) : 0;
  const points = shown.flatMap((mark) => {
    const shift = lines.includes(mark) ? (lines.indexOf(mark) - (lines.length - 1) / 2) * at.apart : 0;
    const spots = mark.y.map((value, index) => value === null ? null
      : [mark.kind === "level" ? box.right - 6 : at.x(mark.x[index]) + shift, at.y(value)]);
    chart.append(svg("g", { class: `series ${colourOf(mark.look)}`, "data-series": mark.name, "data-kind": mark.kind },
      DRAW[mark.kind](mark, spots, at)));
    return spots.flatMap((spot, index) => (spot ? [pointOf(panel, mark, index, spot)] : []));
  });
  return readable(chart, [...others, ...points]);
}

// What was not chosen, as grey dots, where it falls into the frame.
function drawOthers(marks, chart, { panel, x, y }) {
  const isIn = (value, [from, to]) => value >= from && value <= to;
  return marks.flatMap((mark) => mark.y.flatMap((value, index) => {
    if (!isIn(value, y.range) || !isIn(mark.x[index], x.range)) return [];
    const [cx, cy] = [x(mark.x[index]), y(value)];
    chart.append(svg("circle", { class: "other", cx, cy, r: 3 }));
    return [{ ...pointOf(panel, mark, index, [cx, cy]), look: null }];
  }));
}

function emptyChart(width, height, label) {
  return svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, tabindex: "0", role: "group",
    "aria-roledescription": "chart", "aria-label": `${label}. The arrow keys read its values.`,
  });
}

// What is read off a point: its place, its system and its value.
function pointOf(panel, mark, index, [x, y]) {
  const source = mark.sources[index] ?? mark.sources[0];
  const places = [[panel.y, mark.y[index]], [panel.x, mark.x[index]]].filter(([axis]) => axis.places.length);
  const where = mark.kind === "level" ? mark.name : places.map(([axis, place]) => axis.where[place]).join(", ");
  const spread = (value, std) => `${written(value)}${writtenStd(std)}${panel.y.plain ? "" : " %"}`;
  const trials = counted(source.trials, source.unit);
  const value = mark.values.length ? `${written(mark.values[index])} %, ${trials}`
    : panel.x.places.length ? `${spread(mark.y[index], mark.std[index])}, ${trials}`
      : `${panel.x.name} ${spread(mark.x[index], mark.x_std[index])}\n` +
        `${panel.y.name} ${spread(mark.y[index], mark.std[index])}\n${trials}`;
  return {
    x, y, value, where: where || panel.sizes[mark.sizes[index]], series: source.label, cell: source.cell,
    look: mark.kind === "heat" ? null : mark.look, kind: mark.kind,
    group: panel.y.places.length || !panel.x.places.length || mark.kind === "level" ? undefined : mark.x[index],
  };
}

function axesOf({ x, y, box, panel }, width, height, below) {
  const slanted = (tick) => ({
    class: "slanted", transform: `translate(${(tick.at + 4).toFixed(1)} ${box.bottom + 12}) rotate(${-SLANT})`,
  });
  const widest = below ? SLANTED_WIDTH : widthOf(x.ticks.map((tick) => tick.text));
  const every = Math.ceil((x.ticks.length * widest) / (box.right - box.left + widest)); // as many as fit
  return [
    svg("g", { class: "grid" }, y.ticks.map(({ at }) => svg("path", { d: `M${box.left} ${at.toFixed(1)}H${box.right}` }))),
    svg("g", { class: "ticks y" }, y.ticks.map(({ at, text }) => svg("text", { x: box.left - 7, y: at + 4 }, text))),
    svg("g", { class: "ticks x" }, x.ticks.filter((_, index) => index % every === 0).map((tick) =>
      svg("text", below ? slanted(tick) : { x: tick.at, y: box.bottom + 17 }, shortened(tick.text)))),
    svg("text", { class: "axis-title", x: 0, y: 11 }, panel.y.title),
    svg("text", { class: "axis-title x", x: (box.left + box.right) / 2, y: height - 5 }, panel.x.title),
    svg("path", { class: "axis", d: `M${box.left} ${box.bottom}H${box.right}` }),
  ];
}

const SLANT = 40; // degrees
const SLANTED_WIDTH = 18;
const LONGEST_NAME = 12;

function shortened(name) {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

// About how many pixels the longest of the texts takes, with a gap.
function widthOf(texts) {
  return Math.max(0, ...texts.map((text) => shortened(text).length)) * 7 + 8;
}

// Names that do not fit side by side slant; where there are very many, only some are written anyway.
function roomBelow(names, width) {
  const longest = widthOf(names);
  const fits = longest * names.length <= width || names.every((name) => name.length <= 3);
  return fits || names.length * SLANTED_WIDTH > 2 * width ? 0 : Math.round(0.64 * longest) - 12;
}

// Every second span has a tinted ground, so that one sees which places belong together.
function shadesOf(spans, { x, box }) {
  return svg("g", { class: "shades" }, spans.flatMap(([start, end, name], index) => {
    const [left, width] = [x(start - 0.5), (end - start) * x.step];
    return [
      index % 2 ? null : svg("rect", { x: left, y: box.top, width, height: box.bottom - box.top }),
      width > 44 ? svg("text", { x: left + width / 2, y: box.top - 6 }, name) : null,
    ];
  }));
}

// Straight lines, named where they leave the frame through the top.
function guidesOf({ x, y, box, panel }) {
  let last = Infinity;
  return panel.guides.flatMap(([name, x0, y0, x1, y1]) => {
    const along = (height) => x0 + ((x1 - x0) * (height - y0)) / (y1 - y0);
    const leaves = x(along(y.range[1]));
    if (!(leaves > box.left && leaves < box.right) || last - leaves < 7 * name.length) return [];
    last = leaves;
    const bottom = Math.max(y.range[0], y0 + ((y1 - y0) * (x.range[1] - x0)) / (x1 - x0));
    const spots = [[leaves, box.top], [x(along(bottom)), y(bottom)]];
    return [svg("path", { class: "guide", d: lineThrough(spots) }),
      svg("text", { class: "guide-name", x: leaves, y: box.top - 5 }, name)];
  });
}
