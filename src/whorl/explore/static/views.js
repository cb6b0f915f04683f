// What the pages share: the charts of pairs and distances, and how curves are drawn over each other.

import { $, el, words } from "./common.js";
import { Chart } from "./charts.js";
import { HeatMap } from "./heat.js";

const PAIR = { label: "pair, from fastest to slowest", name: "pair" };
const DISTANCE = { label: "distance, in tokens", name: "distance", log: true };
const SHARED = {
  wavelengths: {
    title: "Wavelength of each pair", x: PAIR, y: { label: "tokens in a full rotation", log: true, unit: " tokens" },
    note: "Disc: kept. Diamond: blended. Open: interpolated. Red ring: the pair has out-of-distribution angles at this length. Above a line, the wavelength is longer than that number of tokens.",
  },
  angles: {
    title: "Angle between two tokens", x: PAIR,
    y: { label: "degrees", range: [-180, 180], ticks: [-180, -90, 0, 90, 180], unit: "\u00b0" },
  },
  likeness: {
    title: "How alike distances look", x: DISTANCE, y: { label: "mean cosine of all pairs", range: [-0.2, 1] },
    note: "1 is distance 0. Where a curve rises again, far tokens look near: aliasing. Drawn at 257 distances.",
  },
  decay: {
    title: "Decay with distance", x: DISTANCE, y: { label: "envelope, f(m) / f(0)", range: [0, 1] },
    note: "The bound of RoFormer, section 3.4.3: an upper limit for what is left of a score.",
  },
};

/** A chart in the element of its name; more: options beside the shared ones. */
export const makeChart = (id, more = {}) => new Chart($(`#${id}`), { id, ...SHARED[id], ...more });

export const makeHeatMap = () => new HeatMap($("#heat"), "Scores by pair and distance",
  "The cosine that each pair adds to a score: blue 1, orange -1; distances on a logarithmic scale. An extension makes the bands of slow pairs wider.");

/** Number n of the curves in a view of Python, as the functions below take it. */
export const makePart = (view, n, label, slot) => ({
  label, slot, view, curve: view.curves[n], heat: view.heat[n], likeness: view.likeness[n], envelope: view.envelopes[n], distances: view.distances,
});

/** The wavelength of each pair, as series of a chart. */
export function listWavelengths(parts) {
  const x = longest(parts.map((one) => one.curve.wavelengths)).map((_, n) => n);
  return parts.map(({ label, slot, curve }) => ({
    label, slot, x, y: x.map((n) => curve.wavelengths[n] ?? null), marks: x.map((n) => curve.statuses[n] ?? "kept"),
    rings: curve.new, words: x.map((n) => describePair(curve, n)),
  }));
}

/** Values by distance, as series of a chart; values: a function of a part. */
export function listByDistance(parts, values) {
  const known = parts.filter((one) => one.distances.length && values(one));
  const x = longest(known.map((one) => one.distances));
  return known.map((one, n) => ({ label: one.label, slot: one.slot, dash: n === 0 && known.length > 1, x, y: spread(one.distances, values(one), x) }));
}

export const envelopeOf = (part) => part.envelope?.map((value) => value / part.envelope[0]);

/** Horizontal lines of a chart, each value once: [{y, label}] from [value, name]. */
export function listRules(pairs) {
  const known = pairs.filter(([y], n) => y && pairs.findIndex(([other]) => other === y) === n);
  return known.map(([y, name]) => ({ y, label: `${name} ${words(y)}` }));
}

const longest = (lists) => lists.reduce((a, b) => ((a.at(-1) ?? 0) > (b.at(-1) ?? 0) || a.length > b.length ? a : b), []);

const describePair = (curve, n) => [
  curve.statuses[n], curve.factors[n] && curve.factors[n] !== 1 ? `divided by ${words(curve.factors[n])}` : null,
  curve.new[n] ? "out-of-distribution angles" : null].filter(Boolean).join(", ");

/** Values at other distances: those of the nearest smaller one, none past the last. */
function spread(distances, values, at) {
  if (distances === at) return values;
  let n = 0;
  return at.map((x) => {
    while (n + 1 < distances.length && distances[n + 1] <= x) n += 1;
    return x > distances.at(-1) ? null : values[n];
  });
}

/** How many pairs of a curve have angles that training never produced. */
export function countNewAngles(curve) {
  const count = curve.new.filter(Boolean).length;
  if (!curve.new.length) return "out-of-distribution angles are not known";
  return count ? `${count} pairs have out-of-distribution angles` : "no pair has an out-of-distribution angle";
}

export const listFacts = (rows) => rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);

/** A finding of the diagnosis. */
export const showFinding = (one) => el("li", { class: one.severity },
  el("p", {}, el("b", {}, one.severity), " ", el("code", {}, one.rule), one.where ? ` at ${one.where}` : ""),
  el("p", {}, one.message), el("p", { class: "quiet" }, one.remedy));
