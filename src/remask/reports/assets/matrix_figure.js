// Accuracy matrices as heat maps.

function matrixFigure({ drawn, setting }) {
  const known = drawn.filter((cell) => cell[setting].some((row) => row.some((value) => value !== null)));
  const low = lowestOf(known.map((cell) => cell[setting]));
  return {
    labels: [],
    least: 160,
    key: known.length ? heatKey(low) : null,
    panels: known.map((cell) => ({
      title: cell.label,
      draw: (width) => heatMap({ width, cell, low, setting, opens: cell.id }),
    })),
    see: "Each row is the state after one more task, each column a task. Read down a column: where it pales, that " +
      "task is being forgotten. The diagonal shows how well each task was learnt in the first place.",
  };
}

// All heat maps of a figure share a scale from a round number to 100.
function lowestOf(matrices) {
  const values = matrices.flat(2).filter((value) => value !== null);
  return values.length ? Math.min(90, Math.floor(Math.min(...values) / 10) * 10) : 0;
}

function heatKey(low) {
  return html("p", { class: "heat-key" }, `${low} %`, html("span", { "aria-hidden": "true" }), "100 % right answers");
}

const SMALLEST_NUMBERED = 27; // a cell narrower than this has no room for its number

function heatMap({ width, cell, low, setting, name = SETTINGS[setting], opens = null }) {
  const [matrix, tasks] = [cell[setting], cell[setting].length];
  const [left, top] = [width < 200 ? 22 : 30, 22];
  const side = Math.min(56, Math.floor((Math.min(width, 380) - left - 4) / tasks));
  const height = top + side * tasks + 30;
  const chart = svg("svg", {
    class: "chart heat", viewBox: `0 0 ${width} ${height}`, width, height,
    tabindex: "0", role: "group", "aria-roledescription": "chart",
    "aria-label": `${name} accuracy of ${cell.label} on each task after each task. ` +
      "The arrow keys read its values.",
  });
  const every = Math.ceil(20 / side);
  const marks = [];
  matrix.forEach((row, after) => {
    const [middle, number] = [top + side * (after + 0.5), String(after + 1)];
    if (after % every === 0) {
      const beneath = { x: left + side * (after + 0.5), y: top + side * tasks + 15 };
      chart.append(
        svg("text", { class: "tick row", x: left - 7, y: middle + 4 }, number),
        svg("text", { class: "tick column", ...beneath }, number));
    }
    row.forEach((value, task) => {
      if (value === null) return;
      const share = Math.round((100 * (value - low)) / (100 - low));
      const x = left + side * task;
      chart.append(svg("rect", {
        class: "heat-cell", x: x + 0.5, y: top + side * after + 0.5, width: side - 1, height: side - 1,
        rx: Math.min(3, side / 8), style: `--share: ${share}%`,
      }));
      if (side >= SMALLEST_NUMBERED) {
        chart.append(svg("text", {
          class: `number ${share > 63 ? "high" : share > 47 ? "middle" : "low"}`, x: x + side / 2, y: middle + 4,
        }, written(value, side >= 34 ? 1 : 0)));
      }
      marks.push({
        x: x + side / 2, y: middle, reach: side / 2, series: cell.label, plain: true, cell: opens,
        where: `task ${task + 1}, after task ${after + 1}`,
        value: `${written(value)} %, ${counted(cell.trials, "trial")}`,
      });
    });
  });
  chart.append(
    svg("text", { class: "axis-title", x: 0, y: 11 }, "after task ↓"),
    svg("text", { class: "axis-title x", x: left + (side * tasks) / 2, y: height - 1 }, "accuracy on task →"));
  return readable(chart, marks);
}
