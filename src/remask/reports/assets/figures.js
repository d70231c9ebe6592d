// The figures, and the choice of what they show.

function drawFigures() {
  if (!runCells.length) {
    document.querySelector('nav a[href="#figures"]').hidden = true;
    return;
  }
  byId("figures").hidden = false;
  const ofTestKeys = new Set(hasValidation ? report.figures.filter((figure) => figure.of_test).map(({ key }) => key) : []);
  for (const key of ofTestKeys) byId(`figure-${key}-title`).append(", on the test set");
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
  drawGlance(choice);
  drawChoices(choice);
  const drawn = report.figures.filter(({ benchmark, setting }) =>
    benchmark === choice.benchmark && setting === choice.setting);
  for (const box of byId("figures-list").children) {
    box.hidden = !drawn.some(({ key }) => box.id === `figure-${key}`);
  }
  for (const figure of drawn) drawFigure(figure, choice);
}

// The choice in the address, as far as it exists; otherwise the default.
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
  const heightOf = ({ scores }) => (scores.validation_class_il_A_T ?? scores.class_il_A_T)?.mean ?? 0;
  const best = [...available].sort((a, b) => heightOf(b) - heightOf(a)).slice(0, 5).map((cell) => cell.label);
  const labels = picked.length ? picked : usual.length > 1 ? usual : names.filter((name) => best.includes(name));
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
      html("fieldset", {}, html("legend", {}, "Test setting"), html("div", { class: "pills" }, settings))),
    html("fieldset", {}, html("legend", {}, "Systems"), html("div", { class: "pills systems" }, boxes)),
    tasksNote(choice));
  if (focused) byId(focused)?.focus({ preventScroll: true }); // the control was rebuilt
}

// The classes of each task in the figures, unless there are too many.
function tasksNote({ benchmark, labels }) {
  const shown = runCells.filter((cell) => cell.benchmark === benchmark && labels.includes(cell.label) && cell.tasks);
  const known = distinct(shown.map(({ tasks, class_names: names }) => JSON.stringify(tasks.map((task) => task.map((id) => names[id])))));
  if (known.length !== 1) return "";
  const tasks = JSON.parse(known[0]);
  if (tasks.flat().length > 40) return "";
  return html("dl", { class: "task-names" }, tasks.map((names, index) =>
    html("div", {}, html("dt", {}, `task ${index + 1}`), html("dd", {}, names.join(", ")))));
}

// The marks that the reader's choices leave; some figures show all there is.
function shownMarks(follows, panel, { labels, buffer }) {
  return panel.marks.filter(({ sources: [{ cell, label }] }) =>
    (!follows.includes("system") || labels.includes(label)) &&
    (!follows.includes("buffer") || [buffer, 0].includes(cellsById.get(cell).buffer)));
}

const GAP = 24; // pixels between panels

const MOST_PANELS = 12; // until the reader asks for all

function drawFigure(figure, choice, most = MOST_PANELS) {
  const box = byId(`figure-${figure.key}`);
  const body = box.querySelector(".figure-body");
  const size = box.dataset.size.split(" ").map(Number); // the least width and height of a panel
  const every = figure.panels
    .map((panel) => ({ ...panel, marks: shownMarks(box.dataset.follows, panel, choice), all: panel.marks }))
    .filter((panel) => panel.marks.length);
  const panels = every.slice(0, most);
  box.querySelector(".empty").hidden = panels.length > 0;
  body.replaceChildren();
  if (!panels.length) return;
  const { columns, width } = gridFor(size, panels, roomFor(body));
  const marks = marksOf(panels);
  const isHeat = marks[0].kind === "heat";
  const low = isHeat ? lowestOf(panels) : null;
  const isLarge = (panel) => panel.large && columns > 2;
  const charts = panels.map((panel) => drawPanel({ ...panel, marks: panel.all }, {
    shown: panel.marks, together: figure.same_range && !panel.large ? marksOf(panels.filter((each) => !each.large)) : panel.marks,
    width: isLarge(panel) ? 2 * width + GAP : width, height: isLarge(panel) ? 2 * size[1] + GAP + 28 : size[1], low,
  }));
  const notes = distinct(marks.map((mark) => mark.note).filter(Boolean));
  body.append(
    html("div", { class: "drawn" },
      isHeat ? heatKey(low, figure.heat) : legend(marks),
      html("div", { class: "panels", style: `grid-template-columns: repeat(${columns}, ${width}px)` },
        panels.map((panel, index) => html("div", { class: isLarge(panel) ? "panel large" : "panel" },
          html("h4", {}, panel.title), charts[index]))),
      allButton(every.length, panels.length, "panels", () => drawFigure(figure, choice, Infinity))),
    html("figcaption", {},
      html("p", {}, html("b", {}, "What to look for. "), box.querySelector("template").content.cloneNode(true), figure.remark),
      notes.length ? html("div", { class: "notes" }, html("p", {}, box.dataset.notes), html("ul", {}, notes.map((note) => html("li", {}, note)))) : ""),
    numbersOf(figure, panels, charts));
}

function marksOf(panels) {
  return panels.flatMap((panel) => panel.marks);
}

const CAPTION = 17 * 16 + 40; // pixels beside the charts, see figures.css

function roomFor(body) {
  const width = body.clientWidth || 320;
  return width >= 980 ? width - CAPTION : width;
}

// As many columns as fit, and rows alike in length; a large panel takes the place of four.
function gridFor(size, panels, room) {
  const most = Math.max(1, Math.floor((room + GAP) / (size[0] + GAP)));
  const large = panels.some((panel) => panel.large);
  if (large && most > 2) {
    const columns = Math.min(most, 2 + Math.ceil((panels.length - 1) / 2));
    return { columns, width: Math.floor((room - GAP * (columns - 1)) / columns) };
  }
  const columns = Math.ceil(panels.length / Math.ceil(panels.length / most));
  const widest = Math.max(3.2 * size[1], size[0]);
  return { columns, width: Math.floor(Math.min(widest, (room - GAP * (columns - 1)) / columns)) };
}

function numbersOf(figure, panels, charts) {
  const numbers = rememberOpen(html("details", { id: `numbers-${figure.key}`, class: "numbers" },
    html("summary", {}, "The numbers as a table")));
  // Made only when opened: with 200 classes it is long.
  const fillIn = () => {
    if (!numbers.open || numbers.children.length > 1) return;
    const lines = panels.flatMap((panel, index) => charts[index].points.map((point) =>
      [panel.title, point.series, point.where, point.value]));
    numbers.append(scrolling(table(["Panel", "System", "Where", "Value"], lines), "The numbers of this figure"));
  };
  numbers.addEventListener("toggle", fillIn);
  fillIn();
  return numbers;
}
