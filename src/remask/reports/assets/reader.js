// Reading values off a chart: with the pointer, by touch, or with the arrow keys.
//
// A mark is { x, y, series, where, value } in the chart's own pixels; `group` marks are shown
// together (all systems at one class), and `cell` is what a click opens.

const NEAR = 36; // pixels

function readable(chart, marks) {
  let current = null;
  const ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
  chart.append(ring);

  const show = (mark) => {
    current = mark;
    ring.setAttribute("visibility", mark ? "visible" : "hidden");
    if (!mark) return hideTip();
    ring.setAttribute("cx", mark.x);
    ring.setAttribute("cy", mark.y);
    showTip(chart, mark, mark.group === undefined ? [mark] : marks.filter((other) => other.group === mark.group));
  };
  const fromPointer = (event) => {
    const outline = chart.getBoundingClientRect();
    const zoom = chart.viewBox.baseVal.width / outline.width;
    show(nearest(marks, (event.clientX - outline.left) * zoom, (event.clientY - outline.top) * zoom));
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
    return show(current ? neighbour(marks, current, event.key) : marks[0] ?? null);
  });
  chart.marks = marks; // for the table of the figure's numbers
  return chart;
}

function nearest(marks, x, y) {
  let best = null;
  let least = NEAR;
  for (const mark of marks) {
    const inside = mark.reach && Math.max(Math.abs(mark.x - x), Math.abs(mark.y - y)) <= mark.reach;
    const distance = inside ? 0 : Math.hypot(mark.x - x, mark.y - y);
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}

// The next mark in a direction; along a line where there is one.
function neighbour(marks, from, key) {
  const sideways = key === "ArrowLeft" || key === "ArrowRight";
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  let best = from;
  let least = Infinity;
  for (const mark of marks) {
    const along = sign * (sideways ? mark.x - from.x : mark.y - from.y);
    const across = Math.abs(sideways ? mark.y - from.y : mark.x - from.x);
    const sameLine = sideways && mark.series !== undefined && mark.series === from.series;
    const cost = along + (sameLine ? 0 : 3 * across + (sideways ? 40 : 0));
    if (along > 0.01 && cost < least) [best, least] = [mark, cost];
  }
  return best;
}

function showTip(chart, mark, together) {
  const tip = byId("tip");
  const rows = [...together].sort((a, b) => a.y - b.y).map((each) =>
    html("tr", { class: each === mark ? "chosen" : null },
      html("td", {}, each.plain ? "" : swatch(each.series)),
      html("th", { scope: "row" }, each.series),
      html("td", { class: "value" }, each.value)));
  tip.replaceChildren(html("p", {}, mark.where), html("table", {}, html("tbody", {}, rows)));
  (chart.closest("dialog") ?? document.body).append(tip); // a dialog covers all that is outside it
  tip.hidden = false;
  const outline = chart.getBoundingClientRect();
  const zoom = outline.width / chart.viewBox.baseVal.width;
  const [x, y] = [outline.left + mark.x * zoom, outline.top + mark.y * zoom];
  const size = tip.getBoundingClientRect();
  const left = x + 16 + size.width > innerWidth ? x - 16 - size.width : x + 16;
  const top = Math.min(y - size.height / 2, innerHeight - size.height - 8);
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}
