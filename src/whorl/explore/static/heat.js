// A heat map of scores: one row for each pair, one column for each distance. Colours are between
// those of style.css for -1, 0 and 1, so that the map follows the colours of the system.

import { brief, el } from "./common.js";

const HEIGHT = 230;

export class HeatMap {
  /** figure: an element to fill. */
  constructor(figure, title, note) {
    this.maps = [];
    this.row = el("div", { class: "heat" });
    figure.append(el("div", { class: "head" }, el("h3", {}, title)), this.row, el("p", { class: "quiet" }, note));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(this.maps));
  }

  /** maps: [{label, pairs, distances, values}], values as bytes 0 .. 254 in base64, row by row. */
  draw(maps) {
    this.maps = maps;
    const style = getComputedStyle(document.documentElement);
    const [low, middle, high] = ["--s4", "--ground", "--s1"].map((name) => channels(style.getPropertyValue(name)));
    this.row.replaceChildren(...maps.map((map) => el("div", {},
      el("p", { class: "quiet" }, map.label), paint(map, low, middle, high),
      el("p", { class: "quiet ends" }, el("span", {}, `distance ${brief(map.distances[0])}`), el("span", {}, brief(map.distances.at(-1)))))));
  }
}

function paint(map, low, middle, high) {
  const width = map.distances.length, height = map.pairs.length, bytes = atob(map.values);
  const canvas = el("canvas", {
    width, height, role: "img", style: `height: ${HEIGHT}px`,
    "aria-label": `Cosines by pair and distance, ${map.label}: fast pairs above, ${height} rows`,
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
