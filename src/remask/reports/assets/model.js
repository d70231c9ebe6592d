// The results, and what the page asks of them.

const report = JSON.parse(byId("data").textContent);
const cells = report.cells;
const measures = Object.entries(report.measures);
const cellsById = new Map(cells.map((cell) => [cell.id, cell]));
const runCells = cells.filter((cell) => cell.trials > 0);
const hasValidation = measures.some(([key]) => key.startsWith("validation_"));
const hasClaims = cells.some((cell) => Object.keys(cell.claims ?? {}).length > 0);

const VERDICTS = {
  "not told apart": "no difference from the published mean is found, which does not prove that there is none",
  better: "told apart, with more accuracy or less forgetting than published",
  worse: "told apart, with less accuracy or more forgetting than published",
  "too few trials": "run here, but too few times for a test",
  "not run": "published, and not yet run here",
};

const OTHER_MEASURES = {
  class_il_plasticity: "Class-IL plasticity",
  task_il_plasticity: "Task-IL plasticity",
  confidence_first_task: "confidence, first task",
  confidence_last_task: "confidence, last task",
};

const SETTINGS = { class_il: "Class-IL", task_il: "Task-IL" };
const VALIDATED = {
  class_il: "test Class-IL", task_il: "test Task-IL",
  validation_class_il: "validation Class-IL", validation_task_il: "validation Task-IL",
};

// The accuracy matrices of a cell that were measured: what each is called, by its key.
function matricesNamed(cell) {
  const named = cell.validation_class_il?.length ? VALIDATED : SETTINGS;
  return Object.entries(named).filter(([key]) => cell[key].flat().some((value) => value !== null));
}

function nameOfMeasure(key) {
  return report.measures[key] ?? OTHER_MEASURES[key] ?? key.replaceAll("_", " ");
}

function distinct(values) {
  return [...new Set(values)];
}

function mean(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

function commonest(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function writtenBuffer(buffer) {
  return buffer ? String(buffer) : "none";
}

// What the paper compares comes first, so that these systems have the clearest colours.
const FAVOURITES = ["ER", "MSER(-inf)", "DER++", "MSDER++(-inf)", "MSDER++(-1)"];
const systems = distinct(runCells.map((cell) => cell.label)).sort(
  (a, b) => rankOf(a) - rankOf(b), // sort is stable: the rest keep their order
);

function rankOf(label) {
  const rank = FAVOURITES.indexOf(label);
  return rank < 0 ? FAVOURITES.length : rank;
}

// Colour, dash and marker differ, so lines can be told apart in grey as well. The three lists have
// lengths without a common divisor: 7 × 5 × 8 systems pass before two look the same.
const DASHES = ["5 3", "none", "9 3 2 3", "2 2.5", "12 3"];
const MARKERS = ["circle", "square", "triangle", "diamond", "cross", "plus", "down", "ring"];

function lookOf(label) {
  const slot = Math.max(0, systems.indexOf(label));
  return { colour: `colour-${slot % 7}`, dash: DASHES[slot % 5], marker: MARKERS[slot % 8] };
}

// The systems that can be drawn together; one without a buffer can be drawn beside any.
function cellsAt(benchmark, buffer) {
  return runCells
    .filter((cell) => cell.benchmark === benchmark && (cell.buffer === buffer || !cell.buffer))
    .sort((a, b) => systems.indexOf(a.label) - systems.indexOf(b.label));
}

// The classes of each task as [{ label, name, task }], in the order in which they were learnt; null
// if the records do not say.
function classesOf(cell) {
  if (!cell.tasks) return null;
  return cell.tasks.flatMap((labels, task) => labels.map((label) => ({ label, task, name: cell.class_names[label] })));
}
