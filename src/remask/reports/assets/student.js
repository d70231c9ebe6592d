// Student's t, as in remask.reports.measures: two cells compared, seed by seed where they share enough.

const LEVEL = 0.05;
const FEWEST_TRIALS = 3;

// A measure of every finished trial, by seed.
function bySeed(cell, key) {
  return new Map((cell.records ?? []).filter((record) => record.status === "finished")
    .map((record) => [record.seed, toNumber(record.scores[key])]).filter(([, value]) => !Number.isNaN(value)));
}

// The first minus the second, with a test; null where a side has no values.
function difference(first, second) {
  if (!first.size || !second.size) return null;
  const shared = [...first.keys()].filter((seed) => second.has(seed));
  const enough = Math.min(first.size, second.size) >= FEWEST_TRIALS;
  const isPaired = enough && shared.length >= FEWEST_TRIALS;
  const more = isPaired ? spreadOf(shared.map((seed) => first.get(seed) - second.get(seed))) : null;
  const [one, other] = [first, second].map((values) => spreadOf([...values.values()]));
  if (!enough) return { more: one.mean - other.mean, test: null, p: null };
  const parts = isPaired ? [more] : [one, other];
  const errors = parts.map(({ std, count }) => std ** 2 / (count - 1));
  const error = Math.sqrt(errors.reduce((sum, part) => sum + part, 0));
  const freedom = isPaired || !error ? parts.reduce((sum, { count }) => sum + count - 1, 0)
    : error ** 4 / errors.reduce((sum, part, index) => sum + part ** 2 / (parts[index].count - 1), 0);
  const mean = isPaired ? more.mean : one.mean - other.mean;
  const t = error ? mean / error : mean ? Math.sign(mean) * Infinity : 0;
  const half = error * quantile(LEVEL / 2, freedom);
  return {
    more: mean, test: isPaired ? "paired" : "Welch", freedom, p: Math.min(1, 2 * upperTail(Math.abs(t), freedom)),
    interval: [mean - half, mean + half],
  };
}

// Whether the first is significantly better or worse.
function verdictOf({ better }, { more, p }) {
  if (p === null) return "too few trials";
  if (p >= LEVEL) return "no significant difference";
  return (more > 0) === (better === "higher") ? "better" : "worse";
}

function spreadOf(values) {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  return { mean, std, count: values.length };
}

// P(T > t) of Student's t distribution.
function upperTail(t, freedom) {
  if (t === Infinity) return 0;
  const square = t * t;
  // Both are the probability of |T| > |t|; the first is the exact one far out, where it is small.
  const outside = 9 * square > freedom
    ? incompleteBeta(freedom / (freedom + square), freedom / 2, 0.5)
    : Math.max(0, 1 - incompleteBeta(square / (freedom + square), 0.5, freedom / 2));
  return t > 0 ? outside / 2 : 1 - outside / 2;
}

// The t with this probability above it, by bisection.
function quantile(above, freedom) {
  let [low, high] = [0, 1000];
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    if (upperTail(middle, freedom) > above) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// The regularised incomplete beta function I_x(a, b), by its series of positive terms.
function incompleteBeta(x, a, b) {
  if (x <= 0) return 0;
  let [term, total, count] = [1, 1, 0];
  while (term > 1e-17 * total) {
    term *= (x * (a + b + count)) / (a + 1 + count);
    total += term;
    count += 1;
  }
  const logBeta = logGamma(a) + logGamma(b) - logGamma(a + b);
  return (total / a) * Math.exp(a * Math.log(x) + b * Math.log1p(-x) - logBeta);
}

// Stirling's series, after moving to where it is exact.
function logGamma(x) {
  let [shift, at] = [0, x];
  while (at < 12) {
    shift += Math.log(at);
    at += 1;
  }
  const square = 1 / (at * at);
  const series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / at;
  return (at - 0.5) * Math.log(at) - at + Math.log(2 * Math.PI) / 2 + series - shift;
}
