// Any two systems side by side, with a test of every measure.

function drawCompare() {
  if (runCells.length < 2) {
    document.querySelector('nav a[href="#compare"]').hidden = true;
    return;
  }
  byId("compare").hidden = false;
  updateCompare();
}

function compareCells(one, other) {
  state.change({ one, other });
  updateCompare();
  const section = byId("compare");
  section.scrollIntoView();
  section.focus({ preventScroll: true });
}

// The choice in the address; otherwise the first system with a mask and without, or the first two.
function comparedCells() {
  const known = (name) => runCells.find((cell) => cell.id === state.get(name));
  const usual = report.contrasts[0];
  const one = known("one") ?? cellsById.get(usual?.[0]) ?? runCells[0];
  const other = known("other") ?? [cellsById.get(usual?.[1]), ...runCells].find((cell) => cell && cell !== one);
  return [one, other];
}

function updateCompare() {
  const [one, other] = comparedCells();
  const focused = document.activeElement?.id;
  const chooser = (name, title, chosen) => labelled(title, cellChoice(`compare-${name}`, chosen, (id) => {
    state.change({ [name]: id });
    updateCompare();
  }));
  const swap = html("button", { type: "button", id: "compare-swap", onclick: () => {
    state.change({ one: other.id, other: one.id });
    updateCompare();
  } }, "Swap");
  byId("compare-choice").replaceChildren(chooser("one", "First", one), chooser("other", "Second", other), swap);
  byId("compare-table").replaceChildren(...(one === other
    ? [html("p", { class: "empty" }, "Choose two different systems.")] : comparisonOf(one, other)));
  if (focused?.startsWith("compare-")) byId(focused)?.focus({ preventScroll: true });
}

function cellChoice(id, chosen, onchoose) {
  const groups = new Map();
  for (const cell of runCells) {
    const name = `${cell.benchmark}, buffer ${writtenBuffer(cell.buffer)}`;
    groups.set(name, [...(groups.get(name) ?? []), cell]);
  }
  return html("select", { id, onchange: (event) => onchoose(event.target.value) }, [...groups].map(([name, group]) =>
    html("optgroup", { label: name }, group.map((cell) =>
      html("option", { value: cell.id, selected: cell === chosen }, cell.label)))));
}

function comparisonOf(one, other) {
  const rows = [];
  const seeds = new Set();
  const tests = new Set();
  for (const [key, metric] of Object.entries(metrics)) {
    const values = [bySeed(one, key), bySeed(other, key)];
    const found = isTested(key) ? difference(...values) : untested(...values);
    if (!found || !one.scores[key] || !other.scores[key]) continue;
    if (found.test) tests.add(found.test);
    if (found.test === "paired") seeds.add(found.freedom + 1);
    rows.push([
      measureLabel(metric), html("b", {}, writtenMeasure(key, one.scores[key])),
      html("b", {}, writtenMeasure(key, other.scores[key])), writtenDifference(key, found.more),
      found.interval ? `${writtenDifference(key, found.interval[0])} to ${writtenDifference(key, found.interval[1])}` : MISSING,
      writtenP(found.p), isTested(key) ? winner(metric, found, one, other) : MISSING,
    ]);
  }
  const how = tests.has("paired") ? `paired over ${listed([...seeds].sort((a, b) => a - b).map(String))} shared seeds`
    : tests.size ? "Welch's, since they share too few seeds" : "none, with so few trials";
  const elsewhere = one.benchmark !== other.benchmark ? " They are of different benchmarks, which no test can compare fairly." : "";
  return [
    scrolling(table(["Measure", nameAt(one, other), nameAt(other, one), "Difference", "95 % interval", "p", "Better"], rows,
      { class: "compared-cells" }), "The comparison"),
    html("p", { class: "note" }, `Difference: first minus second. The test: t-test, two-sided, at 5 %, ${how}.${elsewhere}`),
  ];
}

function untested(first, second) {
  if (!first.size || !second.size) return null;
  const [one, other] = [first, second].map((values) => spreadOf([...values.values()]));
  return { more: one.mean - other.mean, test: null, p: null };
}

// The label, with what sets it apart from the other one.
function nameAt(cell, other) {
  const apart = [cell.benchmark !== other.benchmark && cell.benchmark, cell.buffer !== other.buffer && `buffer ${writtenBuffer(cell.buffer)}`];
  return [cell.label, ...apart.filter(Boolean)].join(", ");
}

function winner(metric, found, one, other) {
  const verdict = verdictOf(metric, found);
  if (!["better", "worse"].includes(verdict)) return badge(verdict);
  return html("span", { class: "badge is-better" }, nameAt(...(verdict === "better" ? [one, other] : [other, one])));
}
