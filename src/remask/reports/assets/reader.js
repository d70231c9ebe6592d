// Reading values off a chart: with the pointer, by touch, or with the arrow keys.
//
// A point is { x, y, series, where, value } in the chart's own pixels; `group` points are shown
// together (all systems at one class), and `cell` is what a click opens.

const NEAR = 36; // pixels

function readable(chart, points) {
  let current = null;
  const ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
  chart.append(ring);

  const show = (point) => {
    current = point;
    ring.setAttribute("visibility", point ? "visible" : "hidden");
    if (!point) return hideTip();
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    showTip(chart, point, point.group === undefined ? [point] : points.filter((other) => other.group === point.group));
  };
  const fromPointer = (event) => {
    const outline = chart.getBoundingClientRect();
    const zoom = chart.viewBox.baseVal.width / outline.width;
    show(nearest(points, (event.clientX - outline.left) * zoom, (event.clientY - outline.top) * zoom));
  };

  chart.addEventListener("pointermove", fromPointer);
  chart.addEventListener("pointerdown", fromPointer);
  chart.addEventListener("pointerleave", () => show(null));
  chart.addEventListener("blur", () => show(null));
  chart.addEventListener("click", () => current?.cell && openCell(current.cell));
  chart.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && current?.cell) return openCell(current.cell);
    if (event.key === "Escape" && current) {
      event.preventDefault(); // leave the value first, and the dialog around it next
      return show(null);
    }
    if (!event.key.startsWith("Arrow")) return undefined;
    event.preventDefault();
    return show(current ? neighbour(points, current, event.key) : points[0] ?? null);
  });
  chart.points = points; // for the table of the figure's numbers
  return chart;
}

function nearest(points, x, y) {
  let best = null;
  let least = NEAR;
  for (const point of points) {
    const inside = point.reach && Math.max(Math.abs(point.x - x), Math.abs(point.y - y)) <= point.reach;
    const distance = inside ? 0 : Math.hypot(point.x - x, point.y - y);
    if (distance < least) [best, least] = [point, distance];
  }
  return best;
}

// The next point in a direction; along a line where there is one.
function neighbour(points, from, key) {
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  let best = from;
  let least = Infinity;
  for (const point of points) {
    if (sideways && point.group !== undefined && point.group === from.group) continue; // shifted apart
    const along = sign * (sideways ? point.x - from.x : point.y - from.y);
    const across = Math.abs(sideways ? point.y - from.y : point.x - from.x);
    const sameLine = sideways && point.series !== undefined && point.series === from.series;
    const cost = along + (sameLine ? 0 : 3 * across + (sideways ? 40 : 0));
    if (along > 0.01 && cost < least) [best, least] = [point, cost];
  }
  return best;
}

function showTip(chart, point, together) {
  const tip = byId("tip");
  const rows = [...together].sort((a, b) => a.y - b.y).map((each) =>
    html("tr", { class: each === point ? "chosen" : null },
      html("td", {}, each.look ? swatch(each.look, each.kind) : ""),
      html("th", { scope: "row" }, each.series),
      html("td", { class: "value" }, each.value)));
  tip.replaceChildren(html("p", {}, point.where), html("table", {}, html("tbody", {}, rows)));
  (chart.closest("dialog") ?? document.body).append(tip); // a dialog covers all that is outside it
  tip.hidden = false;
  const outline = chart.getBoundingClientRect();
  const zoom = outline.width / chart.viewBox.baseVal.width;
  const [x, y] = [outline.left + point.x * zoom, outline.top + point.y * zoom];
  const size = tip.getBoundingClientRect();
  const left = x + 16 + size.width > innerWidth ? x - 16 - size.width : x + 16;
  const top = Math.min(y - size.height / 2, innerHeight - size.height - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}
