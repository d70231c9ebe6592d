// Final accuracy against the masking value.

// Masks of one method at one buffer, everything else alike: what follows the comma in a label is
// what sets a cell apart from its like, see remask.results.summary.
function maskGroups(benchmark) {
  const groups = new Map();
  for (const cell of runCells.filter((each) => each.benchmark === benchmark)) {
    const apart = cell.label.includes(", ") ? cell.label.slice(cell.label.indexOf(", ")) : "";
    const key = JSON.stringify([cell.method, cell.buffer, apart]);
    if (!groups.has(key)) groups.set(key, { buffer: cell.buffer, apart, masked: [], plain: null });
    const group = groups.get(key);
    if (cell.mask === null) group.plain = cell;
    else group.masked.push(cell);
  }
  for (const group of groups.values()) group.masked.sort((a, b) => toNumber(a.mask) - toNumber(b.mask));
  return [...groups.values()].filter((group) => group.masked.length >= 3).sort((a, b) => a.buffer - b.buffer);
}

function maskFigure({ benchmark, setting }) {
  const key = `${setting}_A_T`;
  const groups = maskGroups(benchmark)
    .map((group) => ({ ...group, masked: group.masked.filter((cell) => cell.scores[key]) }))
    .filter((group) => group.masked.length >= 3);
  const masks = distinct(groups.flatMap((group) => group.masked).map((cell) => toNumber(cell.mask)))
    .sort((a, b) => a - b);
  return {
    labels: [],
    least: 340,
    key: groups.length ? maskKey() : null,
    panels: groups.map((group) => ({
      title: `${familyName(group)}${group.apart}, buffer ${writtenBuffer(group.buffer)}`,
      draw: (width) => maskChart({ width, height: 280, group, masks, key, setting }),
    })),
    see: "From left to right the mask lets go: at −∞ old classes are left wholly alone, near 0 new ones have room. " +
      "Above the dotted line, masking ends better than no mask." + groups.map((group) => bestMask(group, key)).join(""),
  };
}

function familyName(group) {
  return group.masked[0].label.replace(/\(.*$/, "");
}

function bestMask(group, key) {
  const best = group.masked.reduce((a, b) => (b.scores[key].mean > a.scores[key].mean ? b : a));
  const plain = group.plain?.scores[key];
  return ` Buffer ${writtenBuffer(group.buffer)}: best at m = ${writtenMask(best.mask)}, ` +
    `${written(best.scores[key].mean)} %` +
    (plain ? `, against ${written(plain.mean)} % without a mask.` : ".");
}

function maskKey() {
  const masked = sampleOf("colour-0",
    svg("rect", { class: "band", x: 1, y: 1, width: 28, height: 10 }), svg("path", { class: "line", d: "M1 6H29" }));
  const plain = sampleOf("", svg("path", { class: "line reference", d: "M1 6H29" }));
  const claimed = sampleOf("", svg("g", { class: "claimed" }, marker("diamond", 15, 6, 4)));
  return html("ul", { class: "legend" },
    html("li", {}, masked, "masked at m, mean ±std"),
    html("li", {}, plain, "the same without a mask"),
    hasClaims ? html("li", {}, claimed, "published") : null);
}

function maskChart({ width, height, group, masks, key, setting }) {
  const spreads = [...group.masked, group.plain].map((cell) => cell?.scores[key]).filter(Boolean);
  const claimed = group.masked.map((cell) => cell.claims?.[key]?.mean).filter(Number.isFinite);
  const y = roundRange([...spreads.flatMap(({ mean: middle, std }) => [middle - std, middle + std]), ...claimed]);
  const { chart, box, xAt, yAt } = frame({
    width, height, label: `${SETTINGS[setting]} final accuracy against the masking value, buffer ${group.buffer}`,
    x: places(masks.map(writtenMask)), y, xTitle: "masking value m, not to scale", yTitle: "final average accuracy, %",
  });
  const at = (cell) => xAt(masks.indexOf(toNumber(cell.mask)));
  const edge = (sign) => group.masked.map((cell) => {
    const { mean: middle, std } = cell.scores[key];
    return [at(cell), yAt(middle + sign * std)];
  });
  const outline = [...edge(1), ...edge(-1).reverse()];
  const series = svg("g", { class: "series colour-0" },
    svg("path", { class: "band", d: `${lineThrough(outline)}z` }),
    svg("path", { class: "line", d: lineThrough(group.masked.map((cell) => [at(cell), yAt(cell.scores[key].mean)])) }));
  const marks = [];
  for (const cell of group.masked) {
    const spread = cell.scores[key];
    const claim = cell.claims?.[key];
    const published = claim ? `, published ${writtenSpread(claim)} (${counted(claim.trials, "trial")})` : "";
    const [x, top] = [at(cell), yAt(spread.mean)];
    series.append(marker("circle", x, top));
    if (claim) series.append(svg("g", { class: "claimed" }, marker("diamond", x, yAt(claim.mean), 4.5)));
    marks.push({
      x, y: top, series: cell.label, plain: true, cell: cell.id,
      where: `m = ${writtenMask(cell.mask)}${published}`,
      value: `${writtenSpread(spread)} %, ${counted(cell.trials, "trial")}`,
    });
  }
  if (group.plain?.scores[key]) chart.append(reference(group.plain, key, box, yAt, marks));
  if (masks[0] === -Infinity) chart.append(axisBreak((xAt(0) + xAt(1)) / 2, box.bottom));
  chart.append(series);
  return readable(chart, marks);
}

function reference(cell, key, box, yAt, marks) {
  const spread = cell.scores[key];
  const y = yAt(spread.mean);
  marks.push({
    x: box.right - 6, y, series: cell.label, plain: true, cell: cell.id,
    where: "no mask", value: `${writtenSpread(spread)} %, ${counted(cell.trials, "trial")}`,
  });
  return svg("path", { class: "line reference", d: `M${box.left} ${y.toFixed(1)}H${box.right}` });
}

// From −∞ to any number is further than the axis can show.
function axisBreak(x, y) {
  return svg("g", { class: "break" },
    svg("path", { class: "gap", d: `M${x - 3} ${y}h6` }),
    svg("path", { d: `M${x - 6} ${y + 5}l6 -10M${x} ${y + 5}l6 -10` }));
}
