// The head of the page: how much there is, which runs are unfinished, and how it compares.

function drawOverview() {
  const trials = cells.reduce((sum, cell) => sum + cell.trials, 0);
  const lost = cells.reduce((sum, cell) => sum + (cell.failed ?? 0) + (cell.diverged ?? 0), 0);
  const benchmarks = distinct(runCells.map((cell) => cell.benchmark)).length;
  const facts = [[runCells.length, "cell", " with results"], [trials, "finished trial"], [systems.length, "system"],
    [benchmarks, "benchmark"]].map(([number, name, rest = ""]) => [number, `${name}${number === 1 ? "" : "s"}${rest}`]);
  if (lost) facts.push([lost, "failed or diverged"]);
  byId("facts").replaceChildren(
    html("dl", { class: "facts" }, facts.map(([number, name]) =>
      html("div", {}, html("dt", {}, name), html("dd", {}, number.toLocaleString("en-GB"))),
    )),
  );
  drawRunning();
  drawVerdicts();
  rememberOpen(byId("how"));
  byId("provenance").replaceChildren(...provenance());
}

function drawRunning() {
  const { running } = report;
  if (!running.length) return;
  byId("running").replaceChildren(
    html("h2", { class: "small" }, "Unfinished runs"),
    html("ul", { class: "running" }, running.map((run) =>
      html("li", {}, html("label", {}, html("span", { class: "run-name" }, run.name),
        html("progress", { value: run.done, max: Math.max(run.trials, 1) }),
        html("span", { class: "run-count" }, `${run.done} of ${counted(run.trials, "trial")}`))))),
  );
}

function drawVerdicts() {
  if (!hasClaims) return;
  const total = Object.values(report.counts).reduce((sum, count) => sum + count, 0);
  const known = Object.keys(VERDICTS).filter((word) => report.counts[word] > 0);
  byId("verdicts").replaceChildren(
    html("h2", { class: "small" }, `Beside ${counted(total, "published figure")}`),
    html("p", { class: "intro" },
      `${report.near} of the ${total - report.counts["not run"]} that were run are within two published standard ` +
      `deviations. Better or worse: significant by ${report.verdict_test}` +
      (report.by_chance ? `; about ${report.by_chance} expected by chance.` : ".")),
    html("div", { class: "share", "aria-hidden": "true" }, known.map((word) =>
      html("span", { class: `is-${word.replaceAll(" ", "-")}`, style: `flex-grow: ${report.counts[word]}` }))),
    html("ul", { class: "verdicts" }, known.map((word) => html("li", {},
      html("span", { class: "verdict-count" }, String(report.counts[word])), badge(word), html("p", {}, VERDICTS[word])))),
  );
}

function provenance() {
  const moment = new Date(report.generated).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
  return ["Written ", html("time", { datetime: report.generated }, moment), " from ", html("code", {}, report.store),
    ` by remask ${report.version}`];
}
