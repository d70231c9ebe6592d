// What the mask changes: each masked system against the same one without a mask.

function drawContrasts() {
  const contrasts = report.contrasts.map(contrastOf);
  if (!contrasts.length) {
    document.querySelector('nav a[href="#masks"]').hidden = true;
    return;
  }
  byId("masks").hidden = false;
  byId("masks-intro").replaceChildren(...contrastIntro(contrasts));
  const several = distinct(contrasts.map(({ masked }) => masked.benchmark)).length > 1;
  const tested = measures.filter(([key]) => contrasts.some(({ differences }) => differences[key]));
  const head = [...(several ? ["Benchmark"] : []), "Buffer", "Without a mask", "With a mask",
    ...tested.map(([, name]) => measureName(name)), html("span", { class: "visually-hidden" }, "Compare")];
  const rows = contrasts.map((contrast) => [
    ...(several ? [contrast.masked.benchmark] : []), writtenBuffer(contrast.masked.buffer),
    html("span", {}, breakable(contrast.plain.label)), html("b", {}, breakable(contrast.masked.label)),
    ...tested.map(([key]) => differenceEntry(contrast.differences[key])),
    html("button", { type: "button", class: "compare-button",
      "aria-label": `Compare ${contrast.masked.label} with ${contrast.plain.label}`,
      onclick: () => compareCells(contrast.masked.id, contrast.plain.id) }, "Compare"),
  ]);
  const box = byId("masks-table");
  const draw = (shown) => box.replaceChildren(scrolling(table(head, shown, { class: "contrasts" }), "What the mask changes"),
    allButton(rows.length, shown.length, "comparisons", () => draw(rows)));
  draw(rows.slice(0, rows.length > 2 * MOST_ROWS ? MOST_ROWS : rows.length));
}

const MOST_ROWS = 15; // of twice as many, until the reader asks for all

// The two cells, and their differences in the measures of the test set.
function contrastOf([masked_id, plain_id]) {
  const [masked, plain] = [cellsById.get(masked_id), cellsById.get(plain_id)];
  const differences = measures.filter(([key]) => !key.startsWith("validation_")).map(([key]) => {
    const found = difference(bySeed(masked, key), bySeed(plain, key));
    return [key, found && { ...found, verdict: verdictOf(metrics[key], found) }];
  });
  return { masked, plain, differences: Object.fromEntries(differences) };
}

function contrastIntro(contrasts) {
  const sentences = [["class_il_A_T", "Final Class-IL accuracy"], ["class_il_F_T", "Class-IL forgetting"]].flatMap(([key, name]) => {
    const found = contrasts.map(({ differences }) => differences[key]?.verdict).filter(Boolean);
    if (!found.length) return [];
    const count = (verdict) => found.filter((each) => each === verdict).length;
    const parts = [["better", "better with the mask"], ["worse", "worse with it"], ["no significant difference", "without a significant difference"],
      ["too few trials", "without enough trials for a test"]];
    const counts = parts.filter(([verdict]) => count(verdict)).map(([verdict, text]) => `${count(verdict)} ${text}`);
    return [`${name}, ${counted(found.length, "comparison")}: ${listed(counts)}.`];
  });
  return [`${sentences.join(" ")} Differences are in points, masked minus unmasked; more accuracy and less forgetting are better. `,
    html("span", { class: "test" }, `The test: ${report.contrast_test}. Tests are not corrected for their number: of twenty, one is significant by chance.`)];
}

function differenceEntry(found) {
  if (!found) return MISSING;
  return html("span", { class: `difference is-${found.verdict.replaceAll(" ", "-")}`, title: found.verdict },
    html("b", {}, signed(found.more, 2)),
    html("span", {}, found.p === null ? "too few trials" : `p ${found.p < 0.0001 ? "" : "= "}${writtenP(found.p)}`),
    html("span", { class: "visually-hidden" }, `, ${found.verdict}`));
}
