// The figures, and the choice of what they show.

function drawFigures() {
  if (!runCells.length) {
    document.querySelector('nav a[href="#figures"]').hidden = true;
    return;
  }
  byId("figures").hidden = false;
  const titles = new Map(report.figures.map(({ key, title }) => [key, title]));
  byId("figures-list").replaceChildren(...[...titles].map(([key, title]) =>
    html("figure", { id: `figure-${key}`, "aria-labelledby": `figure-${key}-title` },
      html("h3", { id: `figure-${key}-title` }, title), html("div", { class: "figure-body" }))));
  let drawnAt = 0;
  // Charts are drawn at the width they have, so that their text is never scaled.
  new ResizeObserver(() => {
    const width = byId("figures-list").clientWidth;
    if (!width || Math.abs(width - drawnAt) < 2) return;
    drawnAt = width;
    updateFigures();
  }).observe(byId("figures-list"));
  drawnAt = byId("figures-list").clientWidth;
  updateFigures();
}

function updateFigures() {
  const choice = currentChoice();
  drawChoices(choice);
  for (const figure of report.figures) {
    if (figure.benchmark === choice.benchmark && figure.setting === choice.setting) drawFigure(figure, choice);
  }
}

// What the address says, where that exists; otherwise what is likely to be wanted.
function currentChoice() {
  const benchmarks = distinct(runCells.map((cell) => cell.benchmark));
  const asked = state.get("at");
  const benchmark = benchmarks.includes(asked) ? asked : commonest(runCells.map((cell) => cell.benchmark));
  const here = runCells.filter((cell) => cell.benchmark === benchmark).map((cell) => cell.buffer);
  const filled = here.filter(Boolean);
  const buffers = distinct(filled.length ? filled : here).sort((a, b) => a - b);
  const wanted = Number(state.get("memory", "200"));
  const buffer = buffers.includes(wanted) ? wanted : commonest(filled.length ? filled : here);
  const available = cellsAt(benchmark, buffer);
  const names = available.map((cell) => cell.label);
  const usual = names.filter((label) => report.favourites.includes(label));
  const picked = state.all("system").filter((label) => names.includes(label));
  const labels = picked.length ? picked : usual.length > 1 ? usual : names.slice(0, 5);
  return {
    benchmarks, benchmark, buffers, buffer, names, labels,
    setting: state.get("setting") === "task_il" ? "task_il" : "class_il",
  };
}

function drawChoices(choice) {
  const choose = (changes) => {
    state.change(changes);
    updateFigures();
  };
  const focused = document.activeElement?.id;
  const toggle = (label, on) => {
    const labels = on ? [...choice.labels, label] : choice.labels.filter((other) => other !== label);
    choose({ system: choice.names.filter((name) => labels.includes(name)) });
  };
  const settings = Object.entries(SETTINGS).map(([key, name]) =>
    html("label", { class: "pill" },
      html("input", { type: "radio", name: "setting", id: `setting-${key}`, checked: choice.setting === key,
        onchange: () => choose({ setting: key }) }), html("span", {}, name)));
  const boxes = choice.names.map((label, index) =>
    html("label", { class: "pill" },
      html("input", { type: "checkbox", id: `system-${index}`, checked: choice.labels.includes(label),
        disabled: choice.labels.length === 1 && choice.labels[0] === label,
        onchange: (event) => toggle(label, event.target.checked) }), html("span", {}, swatch(looks.get(label)), label)));
  byId("choices").replaceChildren(
    html("div", { class: "choice-row" },
      choice.benchmarks.length > 1 ? labelled("Benchmark", choiceOf("choose-benchmark",
        choice.benchmarks.map((name) => [name, name]), choice.benchmark,
        (value) => choose({ at: value, memory: null, system: null }))) : "",
      choice.buffers.length > 1 ? labelled("Buffer", choiceOf("choose-buffer",
        choice.buffers.map((size) => [String(size), writtenBuffer(size)]), String(choice.buffer),
        (value) => choose({ memory: value }))) : "",
      html("fieldset", {}, html("legend", {}, "Question at the test"), html("div", { class: "pills" }, settings))),
    html("fieldset", {}, html("legend", {}, "Systems"), html("div", { class: "pills systems" }, boxes)));
  if (focused) byId(focused)?.focus({ preventScroll: true }); // the control was rebuilt
}

// The marks that the reader's choices leave; some figures show all there is.
function shownMarks(figure, panel, { labels, buffer }) {
  return panel.marks.filter(({ sources: [{ cell, label }] }) =>
    (!figure.follows.includes("system") || labels.includes(label)) &&
    (!figure.follows.includes("buffer") || [buffer, 0].includes(cellsById.get(cell).buffer)));
}

const GAP = 24; // pixels between panels

function drawFigure(figure, choice) {
  const body = document.querySelector(`#figure-${figure.key} .figure-body`);
  const panels = figure.panels.map((panel) => ({ ...panel, marks: shownMarks(figure, panel, choice), all: panel.marks }))
    .filter((panel) => panel.marks.length);
  if (!panels.length) {
    body.replaceChildren(html("p", { class: "empty" }, inCode(figure.empty)));
    return;
  }
  const room = body.clientWidth || 320;
  const most = Math.max(1, Math.floor((room + GAP) / (figure.size[0] + GAP)));
  const columns = Math.ceil(panels.length / Math.ceil(panels.length / most)); // rows alike in length
  const width = Math.floor(Math.min(Math.max(620, figure.size[0]), (room - GAP * (columns - 1)) / columns));
  const marks = panels.flatMap((panel) => panel.marks);
  const isHeat = marks[0].kind === "heat";
  const low = isHeat ? lowestOf(panels) : null;
  const charts = panels.map((panel) => panel.message
    ? html("p", { class: "empty" }, panel.message)
    : drawPanel({ ...panel, marks: panel.all }, {
      shown: panel.marks, together: figure.same_range ? marks : panel.marks, width, height: figure.size[1], low,
    }));
  const notes = distinct(marks.map((mark) => mark.note).filter(Boolean));
  body.replaceChildren(
    isHeat ? heatKey(low) : legend(marks),
    html("div", { class: "panels", style: `grid-template-columns: repeat(${columns}, ${width}px)` },
      panels.map((panel, index) => html("div", { class: "panel" }, html("h4", {}, panel.title), charts[index]))),
    html("figcaption", {}, html("b", {}, "What to see. "), figure.caption,
      notes.length ? ` ${figure.notes} ${notes.join("; ")}.` : ""),
    numbersOf(figure, panels, charts));
}

function numbersOf(figure, panels, charts) {
  const numbers = rememberOpen(html("details", { id: `numbers-${figure.key}`, class: "numbers" },
    html("summary", {}, "The numbers as a table")));
  // Made only when opened: with 200 classes it is long.
  const fillIn = () => {
    if (!numbers.open || numbers.children.length > 1) return;
    const lines = panels.flatMap((panel, index) => (charts[index].points ?? []).map((point) =>
      [panel.title, point.series, point.where, point.value]));
    numbers.append(scrolling(table(["Panel", "System", "Where", "Value"], lines), "The numbers of this figure"));
  };
  numbers.addEventListener("toggle", fillIn);
  fillIn();
  return numbers;
}

function inCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? html("code", {}, part) : part));
}
