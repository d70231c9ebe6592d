// Everything about one cell, in a dialog that a link can open.

function openCell(id) {
  state.change({ cell: id }, { newEntry: true });
  showDetail();
}

// The dialog follows the address: the back button closes it, and a link opens it.
function showDetail() {
  const dialog = byId("detail");
  const cell = cellsById.get(state.get("cell"));
  if (!cell) {
    if (dialog.open) dialog.close();
    return;
  }
  if (dialog.open && dialog.dataset.cell === cell.id) return;
  dialog.dataset.cell = cell.id;
  if (!dialog.open) dialog.showModal(); // first, so that its charts know their width
  dialog.replaceChildren(html("div", { class: "detail" }, ...detailOf(cell)));
  dialog.scrollTop = 0;
  byId("detail-close").focus({ preventScroll: true });
}

function detailOf(cell) {
  const kind = [cell.benchmark, `buffer ${writtenBuffer(cell.buffer)}`, cell.mask === null ? "no mask" : `mask ${cell.mask}`];
  return [
    html("header", {},
      html("div", {}, html("h2", { id: "detail-title" }, cell.label), html("p", {}, kind.join(" · "))),
      cell.verdict ? badge(cell.verdict) : "",
      html("button", {
        id: "detail-close", type: "button", class: "quiet", "aria-label": "Close",
        onclick: () => byId("detail").close(),
      }, "✕")),
    measureTable(cell),
    commandBox(cell),
    cell.trials ? matricesOf(cell) : "",
    cell.trials ? confusionOf(cell) : "",
    cell.trials ? tasksOf(cell) : "",
    cell.records?.length
      ? html("section", {}, html("h3", {}, "Trials"), scrolling(trialTable(cell), "Trials"))
      : "",
    cell.config ? html("section", {}, html("h3", {}, "Settings"), settingsOf(cell)) : "",
  ];
}

function measureTable(cell) {
  const every = [...measures.map(([key]) => key), ...Object.keys(metrics).filter((key) => !report.measures[key])];
  const known = every.filter((key) => cell.scores?.[key] || cell.claims?.[key]);
  if (!known.length) {
    return html("p", { class: "empty" }, cell.scores
      ? "No trial of this cell has finished, so there is nothing to average."
      : "Not run here, and no figure of it is printed in the paper's tables.");
  }
  const claimed = Object.keys(cell.claims ?? {}).length > 0;
  const ourHead = cell.trials ? `Ours, ${counted(cell.trials, "trial")}` : "Ours";
  const head = ["Measure", ourHead, ...(claimed ? ["Published", "Difference", "p (Welch)", "Verdict", "Source"] : [])];
  return scrolling(table(head, known.map((key) => {
    const claim = cell.claims?.[key];
    const name = measureLabel({ ...metrics[key], title: nameOfMeasure(key) });
    const ours = html("b", {}, writtenMeasure(key, cell.scores?.[key]));
    if (!claimed) return [name, ours];
    if (!claim) return [name, ours, MISSING, MISSING, MISSING, MISSING, MISSING];
    const difference = Number.isNaN(toNumber(claim.deviations)) ? MISSING : `${signed(claim.deviations)} std`;
    return [name, ours, writtenSpread(claim), difference, writtenP(claim.p), badge(claim.verdict),
      `${sourceOf(claim)}, ${counted(claim.trials, "trial")}`];
  }), { class: claimed ? "measures" : "" }), "Measures");
}

function sourceOf(claim) {
  return claim.source === "paper-dagger" ? "the paper's own runs (†)" : claim.source;
}

function commandBox(cell) {
  const code = html("code", { id: "command", tabindex: "0" }, cell.command);
  const button = html("button", { type: "button", id: "copy", onclick: () => copy(code, button) }, "Copy");
  return html("section", {}, html("h3", {}, cell.trials ? "Run it again" : "Run it"),
    html("div", { class: "command" }, code, button));
}

// The clipboard may be forbidden to a page from a file; then the text is selected, one key away.
async function copy(code, button) {
  let done = "Copied";
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    getSelection().selectAllChildren(code);
    done = "Selected: press Ctrl+C";
  }
  button.textContent = done;
  setTimeout(() => (button.textContent = "Copy"), 2500);
}

function panelsOf(cell, key) {
  return report.figures.filter((figure) => figure.key === key).flatMap((figure) =>
    figure.panels.filter((panel) => panel.marks[0].sources[0].cell === cell.id)
      .map((panel) => ({ ...panel, title: figure.setting_title, heat: figure.heat })));
}

function confusionOf(cell) {
  const [panel] = panelsOf(cell, "confusion");
  if (!panel) return "";
  const low = lowestOf([panel]);
  const width = Math.min(520, byId("detail").clientWidth - 48);
  return html("section", {}, html("h3", {}, "Confusion matrix after the last task"), heatKey(low, panel.heat),
    drawPanel(panel, { shown: panel.marks, width, low }));
}

function matricesOf(cell) {
  const found = panelsOf(cell, "matrices");
  if (!found.length) return "";
  const tested = found.some((panel) => panel.title.startsWith("validation")) ? "test " : "";
  const low = lowestOf(found);
  const width = Math.min(380, byId("detail").clientWidth - 48);
  return html("section", {}, html("h3", {}, "Accuracy on every task after every task"), heatKey(low),
    html("div", { class: "panels" }, found.map((panel) => html("div", { class: "panel" },
      html("h4", {}, panel.title.startsWith("validation") ? panel.title : tested + panel.title),
      drawPanel(panel, { shown: panel.marks, width, low })))));
}

function tasksOf(cell) {
  if (!cell.tasks) return "";
  const namesOf = (classes) => classes.map((id) => cell.class_names[id]).join(", ");
  return html("section", {}, html("h3", {}, "Tasks"), html("dl", { class: "tasks" }, cell.tasks.map((classes, task) =>
    html("div", {}, html("dt", {}, `task ${task + 1}`), html("dd", {}, namesOf(classes))))));
}

function trialTable(cell) {
  const head = ["Seed", "Status", ...measures.map(([, name]) => measureName(name)), "Seconds", "Hash"];
  return table(head, cell.records.map((record) => [
    String(record.seed),
    html("span", { class: record.status === "finished" ? null : "bad" },
      record.status === "diverged" ? `diverged at step ${record.diverged_at}` : record.status,
      record.error ? html("pre", {}, record.error) : ""),
    ...measures.map(([key]) => written(record.scores[key])),
    written(record.seconds, 1),
    html("code", { title: record.hash }, record.hash.slice(0, 12)),
  ]), { class: "trials" });
}

function settingsOf(cell) {
  return html("dl", { class: "settings" }, Object.entries(cell.config).map(([name, value]) =>
    html("div", {}, html("dt", {}, name.replaceAll("_", " ")), html("dd", {}, writtenSetting(value)))));
}

function writtenSetting(value) {
  if (value === null) return "none";
  if (value === true || value === false) return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  if (typeof value === "object") {
    return Object.entries(value).map(([name, each]) => `${name} ${each}`).join(", ") || "none";
  }
  return String(value);
}

function watchDetail() {
  const dialog = byId("detail");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
  dialog.addEventListener("close", () => {
    if (dialog.open) return; // the event comes late, and another cell was opened meanwhile
    hideTip();
    document.body.append(byId("tip"));
    dialog.replaceChildren();
    if (!state.get("cell")) return;
    // Go back over the entry that opened it; a page that was opened by a link has none.
    if (history.state?.opened) history.back();
    else state.change({ cell: null });
  });
}
