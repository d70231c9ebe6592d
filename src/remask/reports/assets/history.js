// The history of a learner: facts, the figure, held-out samples, memory, and each visit.

const learnt = await embeddedData();
const HEIGHT = 340;

function drawHistory() {
  const { visits, classes } = learnt;
  const last = visits.at(-1);
  const facts = [
    [visits.length, "visits"],
    [last ? Object.keys(last.accuracy).length : 0, "classes"],
    [last ? `${written(last.mean, 1)} %` : MISSING, "accuracy over all classes"],
    [last ? last.finished.slice(0, 10) : MISSING, "last visit"],
  ];
  byId("facts").replaceChildren(...facts.map(([value, name]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, String(value)))));
  byId("visits").replaceChildren(html("ol", { class: "visits" }, visits.map((visit) => html("li", {},
    html("b", {}, visit.name), " ", html("time", {}, `${visit.finished.slice(0, 16).replace("T", " ")} UTC`),
    html("p", {}, visit.summary), html("p", { class: "choice" }, visit.choice)))));
  byId("classes").replaceChildren(scrolling(table(["Class", ...visits.map((visit) => visit.name)],
    classes.map((name) => [name, ...visits.map((visit) => written(visit.accuracy[name], 1))])), "The classes"));
  drawNow();
  byId("course").hidden = !learnt.figure;
  if (!learnt.figure) return;
  let drawnAt = 0;
  // The chart is drawn at the width it has, so that its text is never scaled.
  new ResizeObserver(() => {
    const width = byId("figure").clientWidth;
    if (!width || Math.abs(width - drawnAt) < 2) return;
    drawnAt = width;
    drawFigure(width);
  }).observe(byId("figure"));
  drawFigure(drawnAt = byId("figure").clientWidth || 320);
}

const MOST_COLUMNS = 20;
const MOST_CONFUSIONS = 20;

function drawNow() {
  const { now } = learnt;
  for (const section of document.querySelectorAll(".now")) section.hidden = !now;
  if (!now) return;
  byId("confusion").replaceChildren(now.confusion ? confusion(now.confusion) : html("p", { class: "empty" }, now.missing));
  byId("calibration").replaceChildren(now.calibration);
  byId("abstain").replaceChildren(now.abstain.length
    ? scrolling(table(["Accuracy", "Confidence", "Answered"], now.abstain.map(
      ({ wanted, confidence, coverage }) => [`${written(100 * wanted, 0)} %`,
        confidence === null ? "not reached" : written(confidence), `${written(100 * coverage, 0)} %`])), "When to abstain")
    : "");
  const total = now.memory.reduce((sum, each) => sum + each.bytes, 0);
  const rows = now.memory.map((each) =>
    [each.name, each.seen.toLocaleString("en-GB"), each.kept.toLocaleString("en-GB"), size(each.bytes)]);
  const sums = ["seen", "kept"].map((key) =>
    now.memory.reduce((sum, each) => sum + each[key], 0).toLocaleString("en-GB"));
  byId("memory").replaceChildren(scrolling(table(["Class", "Learnt from", "In memory", "Size"],
    [...rows, ["all classes", ...sums, size(total)]]), "The memory"));
}

function size(bytes) {
  if (bytes >= 1e6) return `${written(bytes / 1e6, 1)}\u00a0MB`;
  return bytes >= 1e3 ? `${written(bytes / 1e3, 1)}\u00a0kB` : `${bytes}\u00a0B`;
}

// A matrix of few classes; of many, the most frequent confusions.
function confusion(counts) {
  const predicted = Object.values(counts).flatMap((row) => Object.keys(row));
  const names = [...new Set([...Object.keys(counts), ...predicted])];
  const order = learnt.classes.filter((name) => names.includes(name));
  if (order.length > MOST_COLUMNS) {
    const wrong = Object.entries(counts).flatMap(([name, row]) => Object.entries(row)
      .filter(([other]) => other !== name).map(([other, count]) => [name, other, count]));
    wrong.sort((a, b) => b[2] - a[2]);
    return scrolling(table(["True class", "Predicted class", "Samples"],
      wrong.slice(0, MOST_CONFUSIONS).map(([name, other, count]) => [name, other, String(count)])), "Confusions");
  }
  const cell = (row, total, other) => {
    const count = row[other] ?? 0;
    const share = Math.round(100 * count / total);
    const style = count ? `background: color-mix(in srgb, var(--accent) ${Math.max(8, Math.round(share * 0.6))}%, transparent)` : null;
    return html("td", { style, title: `true ${name}, predicted ${other}: ${count} of ${total}` }, count ? String(count) : "");
  };
  return scrolling(html("table", { class: "confusion" },
    html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "True class"),
      order.map((name, number) => html("th", { scope: "col", title: name }, String(number + 1))))),
    html("tbody", {}, order.map((name, number) => {
      const row = counts[name] ?? {};
      const total = Object.values(row).reduce((sum, count) => sum + count, 0) || 1;
      return html("tr", {}, html("th", { scope: "row" }, `${number + 1} ${name}`),
        order.map((other) => cell(row, total, other)));
    }))), "The confusion matrix");
}

function drawFigure(width) {
  const [panel] = learnt.figure.panels;
  const shown = { shown: panel.marks, together: panel.marks, width: Math.min(width, 900), height: HEIGHT };
  byId("figure").replaceChildren(legend(panel.marks), drawPanel(panel, shown));
  byId("remark").textContent = learnt.figure.remark;
}

drawHistory();
