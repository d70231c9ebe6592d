// The paper's statements, and the findings of our trials.

const FINDINGS = ["holds", "contradicted", "undecided", "too few trials", "not run"];

function drawStatements() {
  const { statements } = report;
  if (!statements.length) {
    document.querySelector('nav a[href="#statements"]').hidden = true;
    return;
  }
  byId("statements").hidden = false;
  byId("statements-intro").replaceChildren(...introduction(statements));
  const benchmarks = distinct(statements.map((statement) => statement.benchmark));
  byId("statements-list").replaceChildren(...benchmarks.flatMap((benchmark) => [
    benchmarks.length > 1 ? html("h3", {}, benchmark) : "",
    html("div", { class: "statements" },
      html("div", { class: "statement-head", "aria-hidden": "true" },
        html("span", {}, "our trials"), html("span", {}, "statement"), html("span", {}, "the paper's own figures")),
      statements.map((statement, index) =>
        statement.benchmark === benchmark ? statementRow(statement, index) : null),
    ),
  ]));
}

function introduction(statements) {
  const found = FINDINGS.map((finding) => [
    finding, statements.filter((statement) => statement.finding === finding).length,
  ]).filter(([, count]) => count);
  const counts = found.map(([finding, count]) => `${count} ${count > 1 && finding === "holds" ? "hold" : finding}`);
  return [
    `${counted(statements.length, "statement")}: ${listed(counts)}. `,
    "Each is a set of comparisons; open one to see them. ",
    "Undecided means that the trials cannot settle it either way. Beside it is the finding by the ",
    "paper's own figures. ",
    html("span", { class: "test" }, `The test: ${report.test}.`),
  ];
}

function statementRow(statement, index) {
  return rememberOpen(html("details", { id: `statement-${index}`, class: "statement" },
    html("summary", {},
      html("span", { class: "ours" }, badge(statement.finding)),
      html("span", { class: "claim" },
        html("span", { class: "text" }, statement.text),
        html("span", { class: "section" }, statement.section)),
      html("span", { class: "theirs" },
        html("span", { class: "theirs-label" }, "by the paper's own figures: "), theirs(statement.by_the_paper)),
    ),
    scrolling(table(
      ["Measure", "Buffer", "Expected to be higher", "Expected to be lower", "Test", "p (Holm)", "Finding"],
      statement.evidence.map(evidenceRow),
      { class: "evidence" },
    ), `Evidence: ${statement.text}`),
  ));
}

// The paper prints nothing about some of its statements; "not run" would be the wrong word.
function theirs(finding) {
  return finding === "not run"
    ? html("span", { class: "badge is-not-run" }, "not printed")
    : badge(finding);
}

function evidenceRow(evidence) {
  return [
    measureName(nameOfMeasure(evidence.measure)),
    writtenBuffer(evidence.buffer),
    measured(evidence.higher, evidence.ours_higher),
    measured(evidence.lower, evidence.ours_lower),
    writtenTest(evidence),
    writtenP(evidence.p),
    badge(evidence.finding),
  ];
}

function measured(label, spread) {
  return html("span", { class: "measured" }, html("span", {}, label), " ", html("b", {}, writtenSpread(spread)),
    spread ? ` (${counted(spread.trials, "trial")})` : "");
}

function writtenTest({ test, freedom }) {
  if (!test) return MISSING;
  if (test === "paired") return `paired, ${counted(freedom + 1, "seed")}`;
  return `Welch's, ${written(freedom, 1)} degrees of freedom`;
}
