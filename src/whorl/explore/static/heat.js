// A heat map of scores: one row for each pair, one column for each distance. Colours are between
// those of style.css for -1, 0 and 1, so that the map follows the colours of the system.

import { brief, el } from "./common.js";

export class HeatMap {
  /** figure: an element to fill. */
  constructor(figure, title, note) {
    this.drawn = [];
    this.row = el("div", { class: "heat" });
    this.note = el("p", { class: "quiet" }, note);
    figure.append(el("div", { class: "head" }, el("h3", {}, title)), this.row, this.note);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(...this.drawn));
  }

  /**
   * parts: [{label, heat: {pairs, distances, values}}], values as bytes 0 .. 254 in base64, row by row;
   * parts without a heat are left out. message: text to show instead.
   */
  draw(parts, message = null) {
    this.drawn = [parts, message];
    this.note.hidden = message != null;
    if (message != null) return this.row.replaceChildren(el("p", { class: "silent" }, message));
    const style = getComputedStyle(document.documentElement);
    const colours = ["--s4", "--ground", "--s1"].map((name) => channels(style.getPropertyValue(name)));
    this.row.replaceChildren(...parts.filter((one) => one.heat).map((one) => map(one, colours)));
  }
}

/** A map with its name above, pairs at its left, and distances below. */
function map({ label, heat }, colours) {
  const [first, last] = [heat.distances[0], heat.distances.at(-1)].map(brief);
  return el("div", {}, el("p", { class: "quiet" }, label),
    el("div", { class: "ends down" }, el("span", {}, `pair ${heat.pairs[0]}`), el("span", {}, `pair ${heat.pairs.at(-1)}`)),
    paint(label, heat, colours),
    el("p", { class: "quiet ends" }, el("span", {}, `distance ${first}`), el("span", {}, last)));
}

function paint(label, heat, [low, middle, high]) {
  const width = heat.distances.length, height = heat.pairs.length, bytes = atob(heat.values);
  const canvas = el("canvas", {
    width, height, role: "img",
    "aria-label": `Cosines by pair and distance, ${label}: fast pairs above, ${height} rows`,
  });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let n = 0; n < width * height; n += 1) {
    const value = (bytes.charCodeAt(n) - 127) / 127, end = value < 0 ? low : high, share = Math.abs(value);
    for (let c = 0; c < 3; c += 1) image.data[4 * n + c] = middle[c] + share * (end[c] - middle[c]);
    image.data[4 * n + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** The red, green and blue of a colour such as #fff or #0072b2. */
function channels(text) {
  const digits = text.trim().slice(1), size = digits.length / 3;
  return [0, 1, 2].map((n) => parseInt(digits.slice(n * size, (n + 1) * size).repeat(3 - size), 16));
}
