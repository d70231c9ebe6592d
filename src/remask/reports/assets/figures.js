// The figures, and the choice of what they show.

const FIGURES = [
  { id: "confidence", title: "What is still known after the last task", make: confidenceFigure,
    empty: "None of the chosen systems has been measured at the end." },
  { id: "learning", title: "Accuracy while later tasks are learnt", make: learningFigure,
    empty: "None of the chosen systems was tested after more than one task." },
  { id: "masks", title: "Final accuracy against the masking value m", make: maskFigure,
    empty: "This needs three masking values of one method at one buffer. " +
      "`remask reproduce ablation` runs the paper's." },
  { id: "matrices", title: "Accuracy on every task after every task", make: matrixFigure,
    empty: "None of the chosen systems has an accuracy matrix here." },
  { id: "balance", title: "Stability against plasticity", make: balanceFigure,
    empty: "None of the chosen systems was tested both right after learning a task and at the end." },
];

function drawFigures() {
  if (!runCells.length) {
    document.querySelector('nav a[href="#figures"]').hidden = true;
    return;
  }
  byId("figures").hidden = false;
  byId("figures-list").replaceChildren(...FIGURES.map(({ id, title }) =>
    html("figure", { id: `figure-${id}`, "aria-labelledby": `figure-${id}-title` },
      html("h3", { id: `figure-${id}-title` }, title), html("div", { class: "figure-body" }))));
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
  for (const figure of FIGURES) drawFigure(figure, choice);
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
  const usual = names.filter((label) => FAVOURITES.includes(label));
  const picked = state.all("system").filter((label) => names.includes(label));
  const labels = picked.length ? picked : usual.length > 1 ? usual : names.slice(0, 5);
  return {
    benchmarks, benchmark, buffers, buffer, names, labels,
    setting: state.get("setting") === "task_il" ? "task_il" : "class_il",
    drawn: available.filter((cell) => labels.includes(cell.label)),
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
        onchange: (event) => toggle(label, event.target.checked) }), html("span", {}, swatch(label), label)));
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
  if (focused) byId(focused)?.focus({ preventScroll: true }); // the control was made anew
}

function drawFigure({ id, make, empty }, choice) {
  const body = document.querySelector(`#figure-${id} .figure-body`);
  const { panels, labels, key, see, least, widest = 620 } = make(choice);
  if (!panels.length) {
    body.replaceChildren(html("p", { class: "empty" }, inCode(empty)));
    return;
  }
  const gap = 24;
  const room = body.clientWidth || 320;
  const most = Math.max(1, Math.floor((room + gap) / (least + gap)));
  const columns = Math.ceil(panels.length / Math.ceil(panels.length / most)); // rows alike in length
  const width = Math.floor(Math.min(widest, (room - gap * (columns - 1)) / columns));
  const charts = panels.map((panel) => panel.draw(width));
  const numbers = rememberOpen(html("details", { id: `numbers-${id}`, class: "numbers" },
    html("summary", {}, "The numbers as a table")));
  // Made only when asked for: with 200 classes it is long.
  const fillIn = () => {
    if (!numbers.open || numbers.children.length > 1) return;
    const lines = panels.flatMap((panel, index) => charts[index].marks.map((mark) =>
      [panel.title, mark.series, mark.where, mark.value]));
    numbers.append(scrolling(table(["Panel", "System", "Where", "Value"], lines), "The numbers of this figure"));
  };
  numbers.addEventListener("toggle", fillIn);
  fillIn();
  body.replaceChildren(
    key ?? (labels.length ? legend(labels) : ""),
    html("div", { class: "panels", style: `grid-template-columns: repeat(${columns}, ${width}px)` },
      panels.map((panel, index) => html("div", { class: "panel" }, html("h4", {}, panel.title), charts[index]))),
    html("figcaption", {}, html("b", {}, "What to see. "), see),
    numbers);
}

function inCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? html("code", {}, part) : part));
}
