// The history of a learner: facts, the figure, and what happened in each visit.

const learnt = await embeddedData();
const HEIGHT = 340;

function drawHistory() {
  const { visits, classes } = learnt;
  const last = visits.at(-1);
  const facts = [
    [visits.length, "visits"],
    [last ? Object.keys(last.accuracy).length : 0, "classes known"],
    [last ? `${written(last.mean, 1)} %` : MISSING, "right, over all classes"],
    [last ? last.finished.slice(0, 10) : MISSING, "last visit"],
  ];
  byId("facts").replaceChildren(...facts.map(([value, name]) =>
    html("div", {}, html("dt", {}, name), html("dd", {}, String(value)))));
  byId("visits").replaceChildren(scrolling(table(["Visit", "Finished (UTC)", "What happened", "Settings"],
    visits.map((visit) => [visit.name, visit.finished.slice(0, 16).replace("T", " "), visit.summary, visit.choice])),
  "The visits"));
  byId("classes").replaceChildren(scrolling(table(["Class", ...visits.map((visit) => visit.name)],
    classes.map((name) => [name, ...visits.map((visit) => written(visit.accuracy[name], 1))])), "The classes"));
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

function drawFigure(width) {
  const [panel] = learnt.figure.panels;
  const shown = { shown: panel.marks, together: panel.marks, width: Math.min(width, 900), height: HEIGHT };
  byId("figure").replaceChildren(
    legend(panel.marks), drawPanel(panel, shown), html("figcaption", {}, learnt.figure.caption));
}

drawHistory();
