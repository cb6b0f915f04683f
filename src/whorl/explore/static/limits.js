// The valid numbers of the page and of links, as Python sends them.

const count = (most) => most.toLocaleString("en");

const NAMES = { length: "Length", base: "Base", factor: "Factor", distance: "Distance", trained: "Trained on", group: "Layers" };

/**
 * By the key of the view: name in messages, least, most, whole. Only the page uses "pair".
 * method: some accept no factor below 1.
 */
export function limits(start, method) {
  const found = Object.fromEntries(Object.entries(start.limits).map(([key, one]) => [key, { name: NAMES[key], ...one }]));
  found.factor.least = start.least_factors[method] ?? found.factor.least;
  return { ...found, pair: { name: "Pair", least: 0, most: 1e6, whole: true } };
}

/** What is wrong with a value, given as text; null if it is valid. */
export function wrong({ name, least, most, whole }, text) {
  const value = text === "" || text == null ? NaN : Number(text);
  if (value >= least && value <= most && (!whole || Number.isInteger(value))) return null;
  const got = Number.isNaN(value) && !text ? "" : `; got ${String(text).slice(0, 40)}`;
  return `${name} must be a ${whole ? "whole " : ""}number from ${count(least)} to ${count(most)}${got}.`;
}

/** The numbers in a text; an error names the first word that is not a number. */
export function vector(name, text) {
  const found = text.replace(/[[\](),;]/g, " ").split(/\s+/).filter(Boolean);
  if (!found.length) throw new Error(`${name} is empty; enter as many numbers as a head has channels.`);
  const bad = found.find((word) => !(Math.abs(Number(word)) < 1e30));
  if (bad != null) throw new Error(`${name} must be numbers below 1e30; got ${bad.slice(0, 40)}.`);
  return found.map(Number);
}
