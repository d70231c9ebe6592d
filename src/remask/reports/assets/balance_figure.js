// Stability against plasticity: a point per cell.

function balanceFigure({ benchmark, labels, setting }) {
  const points = runCells.filter((cell) => cell.benchmark === benchmark)
    .map((cell) => balanceOf(cell, setting)).filter(Boolean);
  const chosen = points.filter(({ cell }) => labels.includes(cell.label));
  const others = points.filter(({ cell }) => !labels.includes(cell.label));
  return {
    labels: labels.filter((label) => chosen.some(({ cell }) => cell.label === label)),
    least: 320,
    widest: 760,
    panels: chosen.length ? [{
      title: "All buffers",
      draw: (width) => balanceChart({ width, height: 380, chosen, others, setting }),
    }] : [],
    see: "Further up, less is forgotten; further right, a new task is learnt better at first. The upper right " +
      "corner is where one wants to be. A mask is meant to move a system up; how far it moves left is what that " +
      "costs. Larger marks are larger buffers. The other systems are grey dots, where they fall into the frame.",
  };
}

function balanceOf(cell, setting) {
  const [learnt, forgotten] = [cell.scores[`${setting}_plasticity`], cell.scores[`${setting}_F_T`]];
  return learnt && forgotten ? {
    cell, x: learnt.mean, xStd: learnt.std, y: 100 - forgotten.mean, yStd: forgotten.std,
  } : null;
}

function balanceChart({ width, height, chosen, others, setting }) {
  const y = roundRange(chosen.flatMap((point) => [point.y - point.yStd, point.y + point.yStd]));
  const x = roundRange(chosen.flatMap((point) => [point.x - point.xStd, point.x + point.xStd]));
  const { chart, box, xAt, yAt } = frame({
    width, height, label: `${SETTINGS[setting]} stability against plasticity`, x: measuredAxis(x), y,
    xTitle: "plasticity: accuracy right after learning, %", yTitle: "stability: 100 − forgetting, %",
  });
  const buffers = distinct(chosen.map(({ cell }) => cell.buffer)).sort((a, b) => a - b);
  const radiusOf = (buffer) => 3.5 + (3.5 * buffers.indexOf(buffer)) / Math.max(1, buffers.length - 1);
  const isIn = (value, [from, to]) => value >= from && value <= to;
  const within = (point) => isIn(point.x, x.range) && isIn(point.y, y.range);
  const marks = [];
  const add = (point, plain) => marks.push({
    x: xAt(point.x), y: yAt(point.y), series: point.cell.label, cell: point.cell.id, plain,
    where: `buffer ${writtenBuffer(point.cell.buffer)}, ${counted(point.cell.trials, "trial")}`,
    value: `stability ${written(point.y)}${writtenStd(point.yStd)} %\n` +
      `plasticity ${written(point.x)}${writtenStd(point.xStd)} %`,
  });
  for (const point of others.filter(within)) {
    chart.append(svg("circle", { class: "other", cx: xAt(point.x), cy: yAt(point.y), r: 3 }));
    add(point, true);
  }
  for (const label of distinct(chosen.map(({ cell }) => cell.label))) {
    const look = lookOf(label);
    const mine = chosen.filter(({ cell }) => cell.label === label).sort((a, b) => a.cell.buffer - b.cell.buffer);
    const group = svg("g", { class: `series ${look.colour}`, "data-series": label },
      svg("path", { class: "line thread", d: lineThrough(mine.map((point) => [xAt(point.x), yAt(point.y)])) }));
    for (const point of mine) {
      const [left, right] = [point.x - point.xStd, point.x + point.xStd]
        .map((value) => Math.max(box.left, Math.min(box.right, xAt(value))).toFixed(1));
      group.append(
        errorBar(xAt(point.x), yAt(point.y - point.yStd), yAt(point.y + point.yStd), box),
        svg("path", { class: "error", d: `M${left} ${yAt(point.y).toFixed(1)}H${right}` }),
        marker(look.marker, xAt(point.x), yAt(point.y), radiusOf(point.cell.buffer)));
      add(point, false);
    }
    chart.append(group);
  }
  return readable(chart, marks);
}
