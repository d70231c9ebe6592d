// The best of what can be compared: cells of one benchmark and one buffer.

const sameGroup = (one, other) => one.benchmark === other.benchmark && one.buffer === other.buffer;
const foundBest = new Map(); // by group and measure

// "best", "alike" if it does not differ significantly from the best, or nothing.
function standing(cell, key) {
  // Where data was held out, what is best is chosen by it, and not by the test.
  if (!cell.scores?.[key] || (cell.config.validation && !key.startsWith("validation_"))) return "";
  const place = JSON.stringify([cell.benchmark, cell.buffer, key]);
  if (!foundBest.has(place)) foundBest.set(place, rankedAt(cells.filter((other) => sameGroup(other, cell)), key));
  return foundBest.get(place).get(cell.id) ?? "";
}

function rankedAt(group, key) {
  const known = group.filter((cell) => cell.scores?.[key]);
  if (known.length < 2) return new Map();
  const sign = metrics[key].better === "lower" ? -1 : 1;
  const height = (cell) => sign * cell.scores[key].mean;
  const top = Math.max(...known.map(height));
  const best = known.filter((cell) => height(cell) === top);
  if (best.length === known.length) return new Map(); // what is the same everywhere has no best
  const values = bySeed(best[0], key);
  const isAlike = (cell) => {
    if (!isTested(key)) return false;
    const found = difference(values, bySeed(cell, key));
    return found?.p !== null && found?.p >= LEVEL;
  };
  return new Map(known.flatMap((cell) =>
    best.includes(cell) ? [[cell.id, "best"]] : isAlike(cell) ? [[cell.id, "alike"]] : []));
}

const STANDINGS = { best: "best at this buffer", alike: "no significant difference from the best" };
