// The results, and what the page asks of them.

const report = await embeddedData();
const cells = report.cells;
const measures = Object.entries(report.measures);
const cellsById = new Map(cells.map((cell) => [cell.id, cell]));
const runCells = cells.filter((cell) => cell.trials > 0);
const hasValidation = measures.some(([key]) => key.startsWith("validation_"));
const ofTest = hasValidation ? "test " : "";
const hasClaims = cells.some((cell) => Object.keys(cell.claims ?? {}).length > 0);

const VERDICTS = {
  "no significant difference": "from the published mean, which does not prove that there is none",
  better: "significantly more accuracy or less forgetting than published",
  worse: "significantly less accuracy or more forgetting than published",
  "too few trials": "run here, but too few trials for a test",
  "not run": "published, but not run here",
};

// The measures, and every other metric that some cell has: { title, about, better, unit }.
const { metrics } = report;

const OTHER_MEASURES = {
  confidence_first_task: "confidence, first task",
  confidence_last_task: "confidence, last task",
};

const SETTINGS = { class_il: "Class-IL", task_il: "Task-IL" };

function nameOfMeasure(key) {
  return report.measures[key] ?? metrics[key]?.title ?? OTHER_MEASURES[key] ?? key.replaceAll("_", " ");
}

function distinct(values) {
  return [...new Set(values)];
}

function commonest(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function writtenBuffer(buffer) {
  return buffer ? String(buffer) : "none";
}

const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// Percentages and points have two digits; seconds, FLOPs and bytes have their unit.
function writtenIn(unit, value) {
  if (unit === "%" || unit === "points") return written(value);
  if (unit === "s") return `${written(value, Math.abs(value) < 10 ? 2 : 1)} s`;
  const [size, prefix] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return `${written(value / size, size > 1 ? 2 : 0)} ${prefix}${unit === "bytes" ? "B" : "FLOP"}`;
}

function writtenMeasure(key, spread) {
  if (!spread) return MISSING;
  const { unit } = metrics[key];
  if (unit === "%" || unit === "points") return writtenSpread(spread);
  const std = Number.isNaN(toNumber(spread.std)) || spread.std <= 1e-9 * Math.abs(spread.mean) ? "" : ` ±${writtenIn(unit, spread.std)}`;
  return writtenIn(unit, spread.mean) + std;
}

function writtenDifference(key, value) {
  const text = writtenIn(metrics[key].unit, value);
  return text.startsWith("−") ? text : `+${text}`;
}

// Trials of a stack share its time, and the other costs follow from the settings: nothing to test.
function isTested(key) {
  return ["%", "points"].includes(metrics[key].unit);
}

function measureLabel({ title, about }) {
  return html("span", { class: "measure-label" }, measureName(title), about ? html("small", {}, about) : "");
}

const looks = new Map(Object.entries(report.looks)); // by label, in the order of the choices
const systems = [...looks.keys()];

// The systems that can be drawn together; one without a buffer can be drawn beside any.
function cellsAt(benchmark, buffer) {
  return runCells
    .filter((cell) => cell.benchmark === benchmark && (cell.buffer === buffer || !cell.buffer))
    .sort((a, b) => systems.indexOf(a.label) - systems.indexOf(b.label));
}
