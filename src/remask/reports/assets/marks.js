// How each kind of mark looks.

const MARKER_PATHS = {
  circle: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  square: (r) => `M${-r * 0.9} ${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  triangle: (r) => `M0 ${-r * 1.2}L${r * 1.1} ${r * 0.8}H${-r * 1.1}z`,
  diamond: (r) => `M0 ${-r * 1.3}L${r * 1.15} 0L0 ${r * 1.3}L${-r * 1.15} 0z`,
  cross: (r) => `M${-r} ${-r}L${r} ${r}M${r} ${-r}L${-r} ${r}`,
  plus: (r) => `M${-r * 1.2} 0H${r * 1.2}M0 ${-r * 1.2}V${r * 1.2}`,
  down: (r) => `M0 ${r * 1.2}L${r * 1.1} ${-r * 0.8}H${-r * 1.1}z`,
};
MARKER_PATHS.ring = MARKER_PATHS.circle;

function marker(shape, [x, y], radius = 4) {
  const hollow = ["cross", "plus", "ring"].includes(shape) ? " hollow" : "";
  const place = `translate(${x.toFixed(1)} ${y.toFixed(1)})`;
  return svg("path", { class: `marker${hollow}`, d: MARKER_PATHS[shape](radius), transform: place });
}

function colourOf(look) {
  return look.colour === null ? "colour-text" : `colour-${look.colour}`;
}

// A line through the spots that are there; a missing one is a gap.
function lineThrough(spots) {
  return spots.map((spot, index) =>
    spot ? `${index && spots[index - 1] ? "L" : "M"}${spot.map((pixel) => pixel.toFixed(1)).join(" ")}` : "").join("");
}

function line(d, look, kind = "") {
  return svg("path", { class: `line ${kind}`, d, "stroke-dasharray": look.dash.join(" ") || "none" });
}

function barUp(mark, index, [x], { y }) {
  if (!mark.std[index]) return null;
  const [low, high] = [-1, 1].map((sign) => y.inside(mark.y[index] + sign * mark.std[index]).toFixed(1));
  return svg("path", { class: "error", d: `M${x.toFixed(1)} ${low}V${high}` });
}

function barAcross(mark, index, [, y], { x }) {
  if (!mark.x_std[index]) return null;
  const [low, high] = [-1, 1].map((sign) => x.inside(mark.x[index] + sign * mark.x_std[index]).toFixed(1));
  return svg("path", { class: "error", d: `M${low} ${y.toFixed(1)}H${high}` });
}

const DRAW = {
  line(mark, spots, at) {
    const room = at.x.step >= 9 || spots.length === 1; // with many places, lines alone
    const bars = at.apart || spots.length === 1; // a band needs two ends
    return [
      bars ? spots.map((spot, index) => spot && barUp(mark, index, spot, at)) : bandOf(mark, spots, at),
      line(lineThrough(spots), mark.look),
      room ? spots.map((spot) => spot && marker(mark.look.marker, spot)) : null,
    ].flat();
  },
  points: (mark, spots, at) => spots.flatMap((spot, index) => spot &&
    [at.x.step >= 9 ? barUp(mark, index, spot, at) : null, marker(mark.look.marker, spot, at.x.step >= 9 ? 4.5 : 2.5)]),
  level: (mark, [[, y]], { box }) => [line(`M${box.left} ${y.toFixed(1)}H${box.right}`, mark.look, "level")],
  thread: (mark, spots, at) => [
    line(lineThrough(spots), { dash: [] }, "thread"),
    spots.map((spot, index) => [barUp(mark, index, spot, at), barAcross(mark, index, spot, at),
      marker(mark.look.marker, spot, at.radius(mark.sizes[index]))]),
  ].flat(2),
};

function bandOf(mark, spots, { y }) {
  if (!mark.std.length || spots.includes(null)) return null;
  const edge = (sign) => spots.map(([x], index) => [x, y.inside(mark.y[index] + sign * (mark.std[index] ?? 0))]);
  return svg("path", { class: "band", d: `${lineThrough([...edge(1), ...edge(-1).reverse()])}z` });
}

const SMALLEST_NUMBERED = 22; // a square narrower than this has no room for its number

function heatMap(panel, [mark], width, low) {
  const tasks = panel.x.places.length;
  const longest = Math.max(...panel.x.places.map((name) => shortened(name).length));
  const named = longest > 3; // names of classes: those of the columns run upwards
  const [left, top] = [named ? 7 * longest + 12 : width < 200 ? 22 : 30, 22];
  const side = Math.min(56, Math.floor((Math.min(width, 480) - left - 4) / tasks));
  const below = named ? 7 * longest + 8 : 15;
  const height = top + side * tasks + below + 15;
  const chart = emptyChart(width, height, `${panel.title}: ${panel.x.title}, ${panel.y.title}`);
  chart.classList.add("heat");
  const every = Math.ceil(20 / side);
  const middle = (start, place) => start + side * (place + 0.5);
  panel.x.places.forEach((text, place) => place % every || chart.append(
    svg("text", { class: "tick row", x: left - 7, y: middle(top, place) + 4 }, shortened(text)),
    svg("text", named
      ? { class: "tick row", transform: `translate(${middle(left, place) + 4} ${top + side * tasks + 6}) rotate(-90)` }
      : { class: "tick column", x: middle(left, place), y: top + side * tasks + 15 }, shortened(text))));
  const points = mark.values.map((value, index) => {
    const share = Math.round((100 * (value - low)) / (100 - low));
    const [x, y] = [middle(left, mark.x[index]), middle(top, mark.y[index])];
    chart.append(svg("rect", {
      class: "heat-cell", x: x - side / 2 + 0.5, y: y - side / 2 + 0.5, width: side - 1, height: side - 1,
      rx: Math.min(3, side / 8), style: `--share: ${share}%`,
    }));
    if (side >= SMALLEST_NUMBERED) {
      const shade = share > 63 ? "high" : share > 47 ? "middle" : "low";
      chart.append(svg("text", { class: `number ${shade}`, x, y: y + 4 }, written(value, side >= 38 ? 1 : 0)));
    }
    return { ...pointOf(panel, mark, index, [x, y]), reach: side / 2 };
  });
  chart.append(
    svg("text", { class: "axis-title", x: 0, y: 11 }, `${panel.y.title} ↓`),
    svg("text", { class: "axis-title x", x: left + (side * tasks) / 2, y: height - 1 }, `${panel.x.title} →`));
  return readable(chart, points);
}

// All heat maps of a figure share a scale from a multiple of 10 to 100.
function lowestOf(panels) {
  const values = panels.flatMap((panel) => panel.marks.flatMap((mark) => mark.values));
  return Math.min(90, Math.floor(Math.min(...values) / 10) * 10);
}

function heatKey(low, what = "accuracy") {
  return html("p", { class: "heat-key" }, `${low} %`, html("span", { "aria-hidden": "true" }), `100 % ${what}`);
}

function swatch(look, kind = "line") {
  const size = { viewBox: "0 0 30 12", width: 30, height: 12 };
  return svg("svg", { class: `swatch ${colourOf(look)}`, ...size, "aria-hidden": "true" },
    kind === "points" ? null : line("M1 6H29", look, kind), look.marker ? marker(look.marker, [15, 6], 3.6) : null);
}

// Pointing at an entry brings its marks forward.
function legend(marks) {
  const named = new Map(marks.filter((mark) => mark.name).map((mark) => [mark.name, mark]));
  const emphasise = (event, name) => {
    for (const series of event.target.closest("figure").querySelectorAll("[data-series]")) {
      series.classList.toggle("faded", name !== null && series.dataset.series !== name);
    }
  };
  return html("ul", { class: "legend" }, [...named].map(([name, mark]) =>
    html("li", {
      onpointerenter: (event) => emphasise(event, name),
      onpointerleave: (event) => emphasise(event, null),
    }, swatch(mark.look, mark.kind), name)));
}
