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

function nameOfMeasure(key) {
  return report.measures[key] ?? OTHER_MEASURES[key] ?? key.replaceAll("_", " ");
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

const looks = new Map(Object.entries(report.looks)); // by label, in the order of the choices
const systems = [...looks.keys()];

// The systems that can be drawn together; one without a buffer can be drawn beside any.
function cellsAt(benchmark, buffer) {
  return runCells
    .filter((cell) => cell.benchmark === benchmark && (cell.buffer === buffer || !cell.buffer))
    .sort((a, b) => systems.indexOf(a.label) - systems.indexOf(b.label));
}
