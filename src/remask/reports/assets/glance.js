// The final accuracy of every system at a glance, for the benchmark and buffer of the figures.

const MOST_AT_A_GLANCE = 16;

function drawGlance({ benchmark, buffer, setting }) {
  const key = `${setting}_A_T`;
  const known = cellsAt(benchmark, buffer).filter((cell) => cell.scores[key]);
  const shown = [...known];
  if (shown.length > MOST_AT_A_GLANCE) {
    const least = shown.map((cell) => cell.scores[key].mean).sort((a, b) => b - a)[MOST_AT_A_GLANCE - 1];
    shown.splice(0, shown.length, ...shown.filter((cell) => cell.scores[key].mean >= least));
  }
  byId("glance").hidden = shown.length < 2;
  if (shown.length < 2) return;
  const ends = shown.flatMap(({ scores: { [key]: { mean, std } } }) => [mean - (std ?? 0), mean + (std ?? 0)]);
  const { range: [low, high], ticks } = roundRange(ends);
  const place = (value) => (100 * (Math.max(low, Math.min(high, value)) - low)) / (high - low);
  const at = (value) => `${place(value).toFixed(2)}%`;
  const left = known.length - shown.length;
  byId("glance").replaceChildren(
    html("h2", { class: "small" }, `Final ${ofTest}${SETTINGS[setting]} accuracy, ${benchmark}` +
      (buffer ? `, buffer ${buffer}` : "")),
    html("ul", {}, shown.map((cell) => {
      const { mean, std } = cell.scores[key];
      const rank = standing(cell, cell.config.validation ? `validation_${key}` : key);
      return html("li", { class: rank || null },
        html("a", { href: `#${new URLSearchParams({ cell: cell.id })}`, onclick: (event) => openByLink(event, cell.id) },
          cell.label),
        html("span", { class: `track ${colourOf(looks.get(cell.label))}`, "aria-hidden": "true" },
          std ? html("i", { class: "whisker", style: `left: ${at(mean - std)}; right: ${(100 - place(mean + std)).toFixed(2)}%` }) : "",
          html("i", { class: "dot", style: `left: ${at(mean)}` })),
        html("span", { class: "value" }, html("b", {}, written(mean)), html("span", {}, writtenStd(std)),
          rank ? html("span", { class: "visually-hidden" }, `, ${STANDINGS[rank]}`) : ""));
    })),
    html("p", { class: "scale", "aria-hidden": "true" }, html("span", {}),
      html("span", { class: "track" }, ticks.map((tick) => html("i", { style: `left: ${at(tick)}` }, String(tick)))), html("span", {})),
    html("p", { class: "note" }, `Mean ± standard deviation in percent. Bold: the best of each buffer size${hasValidation ? " (by validation where data was held out)" : ""}; ` +
      "dotted: no significant difference from it." +
      (left ? ` The ${shown.length} best of ${known.length} are shown.` : "")));
}

function openByLink(event, id) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openCell(id);
}
