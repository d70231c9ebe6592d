// Our results beside the published ones: a row per cell, to sort and to filter.

const benchmarkNames = distinct(cells.map((cell) => cell.benchmark));

// The measures that the reader chose; otherwise those that everyone expects.
function chosenMeasures() {
  const asked = state.all("column").filter((key) => metrics[key]);
  return asked.length ? Object.keys(metrics).filter((key) => asked.includes(key)) : measures.map(([key]) => key);
}

const columnsNow = () => [
  benchmarkNames.length > 1 && { key: "benchmark", title: "Benchmark", value: (cell) => cell.benchmark },
  { key: "label", title: "System", value: (cell) => cell.label },
  { key: "buffer", title: "Buffer", value: (cell) => cell.buffer },
  { key: "trials", title: "Trials", value: (cell) => cell.trials, first: "descending" },
  ...chosenMeasures().map((key) => ({
    key, title: nameOfMeasure(key), measure: true,
    value: (cell) => cell.scores?.[key]?.mean,
    first: metrics[key].better === "lower" ? "ascending" : "descending", // the best on top
  })),
  hasClaims && {
    key: "verdict", title: "Verdict",
    value: (cell) => (cell.verdict ? Object.keys(VERDICTS).indexOf(cell.verdict) : null),
  },
].filter(Boolean);
let COLUMNS = columnsNow();

const FILTERS = [
  { key: "benchmark", title: "Benchmark", of: (cell) => [cell.benchmark] },
  { key: "experiment", title: "Experiment", of: (cell) => cell.experiments ?? [] },
  { key: "buffer", title: "Buffer", of: (cell) => [String(cell.buffer)], number: true,
    text: (value) => writtenBuffer(Number(value)) },
  { key: "verdict", title: "Verdict", of: (cell) => (hasClaims ? [cell.verdict ?? "nothing published"] : []) },
];

const rows = new Map(); // each row is made once for the columns there are, and then only moved
const groupsOf = distinct(cells.map((cell) => JSON.stringify([cell.benchmark, cell.buffer])));

function drawResults() {
  byId("results-intro").textContent =
    "A row per cell: our mean and standard deviation over its trials" +
    (hasClaims
      ? "; beneath it the published figure, and how far ours lies from it in published standard deviations (std). " +
        "The small scale under it runs from −4 to +4 std, its shaded part is ±2."
      : ".") +
    " Bold is the best at each buffer; a dotted line means no significant difference from the best (t-test, paired by seed)." +
    (hasValidation
      ? " Validation is measured on training data that was held out, everything else on the test set. The best of cells " +
        "with validation is the best by validation, and test figures have no part in the choice."
      : "") +
    " Choose a system to see its settings, its trials and how to run it again.";
  drawFilters();
  drawTable();
  window.addEventListener("resize", fitTable);
}

function drawTable() {
  COLUMNS = columnsNow();
  rows.clear();
  // The roles are spelt out because a table that is laid out as blocks would lose them.
  const head = COLUMNS.map((column) => html("th", {
    scope: "col", role: "columnheader", class: column.measure ? "measure" : column.key, "data-key": column.key,
    title: metrics[column.key]?.about,
  }, html("button", { type: "button", onclick: () => sortBy(column) }, measureName(column.title))));
  const kind = hasClaims ? "results compared" : "results";
  byId("results-table").replaceChildren(
    html("table", { class: kind, role: "table", "aria-labelledby": "results-title" },
      html("thead", { role: "rowgroup" }, html("tr", { role: "row" }, head)),
      html("tbody", { role: "rowgroup" })),
    html("p", { id: "nothing", class: "empty" }, cells.length
      ? "No cell matches all of these filters."
      : "There are no results yet. They appear here as trials finish."),
  );
  updateRows();
}

// A table that does not fit scrolls in its box; on a phone its rows are blocks, and it fits.
function fitTable() {
  const box = byId("results-table");
  box.classList.remove("scrolling");
  box.classList.toggle("scrolling", box.scrollWidth > box.clientWidth);
}

function drawFilters() {
  const text = html("input", {
    id: "filter-text", type: "search", placeholder: "e.g. MSDER++", autocomplete: "off", spellcheck: "false",
    value: state.get("q", ""),
    oninput: (event) => changeFilter({ q: event.target.value }),
  });
  const selects = FILTERS.map((filter) => {
    const values = distinct(cells.flatMap(filter.of));
    if (values.length < 2) return null;
    values.sort(filter.number ? (a, b) => a - b : undefined);
    const options = [["", "all"], ...values.map((value) => [value, filter.text?.(value) ?? value])];
    return labelled(filter.title, choiceOf(`filter-${filter.key}`, options, state.get(filter.key, ""),
      (value) => changeFilter({ [filter.key]: value })));
  });
  const orders = COLUMNS.flatMap((column) => ["ascending", "descending"].map((order) =>
    [`${column.key} ${order}`, `${column.title}, ${order}`]));
  byId("filters").replaceChildren(
    labelled("Search", text),
    ...selects.filter(Boolean),
    html("div", { class: "narrow-only" }, labelled("Sort by", choiceOf(
      "sort", [["", "benchmark, buffer, system"], ...orders], `${state.get("sort", "")} ${state.get("order", "")}`.trim(),
      (value) => {
        const [sort, order] = value ? value.split(" ") : [null, null];
        state.change({ sort, order });
        updateRows();
      }))),
    html("button", { id: "clear", type: "button", class: "quiet", onclick: clearFilters }, "Clear"),
    Object.keys(metrics).length > measures.length ? columnChoice() : "",
  );
}

function columnChoice() {
  const choose = (key, on) => {
    const now = chosenMeasures();
    const next = on ? [...now, key] : now.filter((other) => other !== key);
    state.change({ column: next });
    drawTable();
  };
  return rememberOpen(html("details", { id: "columns", class: "columns" }, html("summary", {}, "Columns"),
    html("div", { class: "column-list" }, Object.entries(metrics).map(([key, metric]) =>
      html("label", {}, html("input", { type: "checkbox", id: `column-${key}`, checked: chosenMeasures().includes(key),
        onchange: (event) => choose(key, event.target.checked) }), measureLabel(metric))))));
}

function changeFilter(changes) {
  state.change(changes);
  updateRows();
}

function clearFilters() {
  state.change(Object.fromEntries(["q", ...FILTERS.map((filter) => filter.key)].map((key) => [key, null])));
  drawFilters();
  updateRows();
  byId("filter-text").focus();
}

// First the order that puts the best on top, then its reverse, then by buffer and system again.
function sortBy(column) {
  const first = column.first ?? "ascending";
  const second = first === "ascending" ? "descending" : "ascending";
  const now = state.get("sort") === column.key ? state.get("order") : null;
  const next = now === first ? second : now === second ? null : first;
  state.change({ sort: next && column.key, order: next });
  updateRows();
}

function updateRows() {
  const shown = inOrder(cells.filter(matches));
  const entries = grouped(shown);
  document.querySelector(".results").classList.toggle("grouped", entries.length > shown.length);
  document.querySelector(".results tbody").replaceChildren(...entries);
  for (const th of document.querySelectorAll(".results th")) {
    const sorted = th.dataset.key === state.get("sort");
    th.setAttribute("aria-sort", sorted ? state.get("order", "ascending") : "none");
  }
  byId("shown").textContent = shown.length === cells.length
    ? counted(cells.length, "cell")
    : `${shown.length} of ${counted(cells.length, "cell")}`;
  byId("clear").hidden = !["q", ...FILTERS.map((filter) => filter.key)].some((key) => state.get(key));
  byId("nothing").hidden = shown.length > 0;
  fitTable();
}

function matches(cell) {
  const masked = cell.mask === null ? "" : `ms${cell.method}`;
  const text = `${cell.benchmark} ${cell.label} ${cell.method} ${masked} ${cell.verdict ?? ""}`.toLowerCase();
  const words = state.get("q", "").toLowerCase().split(/\s+/);
  return words.every((word) => text.includes(word)) &&
    FILTERS.every(({ key, of }) => !state.get(key) || of(cell).includes(state.get(key)));
}

function inOrder(list) {
  const column = COLUMNS.find(({ key }) => key === state.get("sort"));
  if (!column) return list;
  const direction = state.get("order") === "descending" ? -1 : 1;
  const missing = (value) => value === null || value === undefined;
  return [...list].sort((one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    if (missing(a) || missing(b)) return missing(a) - missing(b); // missing last, either way
    return direction * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  });
}

// Unless the reader sorts them, rows are grouped by benchmark and buffer.
function grouped(shown) {
  if (groupsOf.length < 2 || COLUMNS.some(({ key }) => key === state.get("sort"))) return shown.map(rowOf);
  return shown.flatMap((cell, index) => {
    const before = shown[index - 1];
    if (before && sameGroup(before, cell)) return [rowOf(cell)];
    const name = `${benchmarkNames.length > 1 ? `${cell.benchmark}, ` : ""}${cell.buffer ? `buffer ${cell.buffer}` : "no buffer"}`;
    return [html("tr", { role: "row", class: "group" }, html("th", { role: "rowheader", scope: "rowgroup", colspan: COLUMNS.length }, name)),
      rowOf(cell)];
  });
}

function rowOf(cell) {
  if (!rows.has(cell.id)) rows.set(cell.id, makeRow(cell));
  return rows.get(cell.id);
}

function makeRow(cell) {
  const open = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || !getSelection().isCollapsed) return;
    event.preventDefault();
    openCell(cell.id);
  };
  const entry = (column) => html("td",
    { role: "cell", class: column.measure ? "measure" : column.key },
    ["label", "verdict"].includes(column.key) ? "" : columnName(measureName(column.title)),
    column.measure ? measureEntry(cell, column.key) : plainEntry(cell, column.key));
  return html("tr", { role: "row", class: cell.trials ? null : "idle", "data-cell": cell.id, onclick: open },
    COLUMNS.map(entry));
}

function plainEntry(cell, key) {
  switch (key) {
    case "label":
      return [html("a", { href: `#${new URLSearchParams({ cell: cell.id })}` }, cell.label),
        cell.chosen ? html("small", { class: "chosen-tag" }, "best by validation") : ""];
    case "buffer":
      return cell.buffer ? String(cell.buffer) : MISSING;
    case "trials": {
      const lost = ["diverged", "failed"].filter((end) => cell[end]).map((end) => `${cell[end]} ${end}`);
      if (cell.hardware?.length > 1) lost.push(`${cell.hardware.length} kinds of hardware`);
      return [String(cell.trials), lost.length ? html("small", { class: "lost" }, lost.join(", ")) : ""];
    }
    case "verdict":
      return cell.verdict ? badge(cell.verdict) : html("span", { class: "nothing" }, "nothing published");
    default:
      return cell[key];
  }
}

function measureEntry(cell, key) {
  const ours = cell.scores?.[key];
  const claim = cell.claims?.[key];
  const { unit } = metrics[key];
  const rank = standing(cell, key);
  const std = unit === "%" || unit === "points" ? writtenStd(ours?.std) : "";
  const top = html("div", { class: `ours ${rank}`, title: STANDINGS[rank] }, html("b", {}, ours ? writtenIn(unit, ours.mean) : MISSING),
    html("span", {}, std), rank ? html("span", { class: "visually-hidden" }, `, ${STANDINGS[rank]}`) : "");
  if (!claim) return top;
  const deviations = toNumber(claim.deviations);
  const away = ours && !Number.isNaN(deviations);
  return [
    top,
    html("div", { class: `published is-${claim.verdict.replaceAll(" ", "-")}` },
      html("span", { class: "visually-hidden" }, "published "),
      html("span", {}, writtenSpread(claim)), " ",
      away ? html("span", { class: "std" }, `${signed(deviations)} std`) : "",
      away ? html("span", { class: "visually-hidden" }, `, ${claim.verdict}`) : "",
      away ? html("i", { class: "gauge", style: `--at: ${Math.max(-4, Math.min(4, deviations))}` }) : ""),
  ];
}
