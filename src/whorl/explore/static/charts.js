// Line and point charts as SVG. A chart is drawn again at each change: a few hundred points in a
// dozen paths, which takes about a millisecond. Colours come from style.css, by class.

import { brief, el, lines, save, shape, words } from "./common.js";

const LEFT = 58, RIGHT = 14, TOP = 12, BOTTOM = 42;

export class Chart {
  /**
   * figure: an element to fill. options: id, title, note, x and y ({label, name, log, unit, range, ticks},
   * each for a tick at every value), pick(x) called on click and Enter, over(x, chart) when the pointer moves.
   */
  constructor(figure, options) {
    Object.assign(this, { figure, options, series: [], rules: [], at: null, marked: null });
    const id = options.id;
    this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.svg = shape("svg", {
      class: "plot", tabindex: 0, role: "slider", "aria-label": options.title,
      "aria-describedby": `${id}-note`, "aria-valuemin": 0, "aria-valuemax": 0, "aria-valuenow": 0,
    });
    this.box = el("div", { class: "box" }, this.svg, this.tip);
    this.note = el("p", { class: "quiet", id: `${id}-note` }, options.note ?? "");
    this.key = el("ul", { class: "key", "aria-label": `Legend of ${options.title}` });
    const button = (kind) => el("button", {
      type: "button", class: "small", "aria-label": `Save ${options.title} as ${kind}`,
      onclick: () => this.export(kind),
    }, kind);
    this.tools = el("div", { class: "tools" }, button("SVG"), button("PNG"));
    figure.append(
      el("div", { class: "head" }, el("h3", {}, options.title), this.tools),
      this.key, this.box, this.note);
    this.svg.addEventListener("pointermove", (event) => this.hover(event));
    this.svg.addEventListener("pointerdown", (event) => this.hover(event));
    // A finger that is lifted leaves too; what it showed stays until something else is touched.
    this.svg.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.leave());
    this.svg.addEventListener("click", () => this.at != null && options.pick?.(this.xs[this.at]));
    this.svg.addEventListener("keydown", (event) => this.press(event));
    this.svg.addEventListener("blur", () => this.leave());
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  /**
   * series: [{label, slot, x, y, marks, dash, band}], where marks is the shape at each point
   * and slot is the number of a colour. rules: [{y, label}]. message: text to show instead.
   */
  draw({ series = [], rules = [], message = null, note = null, marked = null }) {
    Object.assign(this, { series: twins(series), rules, message, marked });
    if (note != null) this.note.textContent = note;
    this.xs = series[0]?.x ?? [];
    if (this.at != null && this.at >= this.xs.length) this.at = null;
    this.key.replaceChildren(...this.series.map((one) => el("li", { class: `s${one.slot}` },
      shape("svg", { class: "swatch", viewBox: "0 0 22 10", "aria-hidden": "true" }, swatch(one)), el("span", {}, named(one)))));
    this.paint();
  }

  paint() {
    const shown = this.series.filter((one) => one.y.some((y) => y != null));
    const message = this.message ?? (shown.length ? null : "There is nothing to draw here yet.");
    const width = Math.max(260, this.box.clientWidth), told = lines(message ?? "", Math.floor((width - 30) / 7.2));
    const height = message != null ? 50 + 20 * told.length : width < 480 ? 250 : 290;
    Object.assign(this, { width, height });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.note.hidden = message != null;
    this.svg.classList.toggle("silent", message != null);
    for (const button of this.tools.children) button.disabled = message != null;
    if (message != null) {
      this.svg.replaceChildren(shape("g", { class: "told" }, ...told.map((line, n) => shape("text", { x: 15, y: 34 + 20 * n }, line))));
      this.svg.setAttribute("aria-valuetext", message);
      return;
    }
    this.scales(shown);
    // The first below all others, unless its line is broken and hides nothing.
    const rest = shown.slice(1).reverse(), order = shown[0].dash ? [...rest, shown[0]] : [shown[0], ...rest];
    this.svg.replaceChildren(this.axes(), ...order.flatMap((one, n) => this.one(one, order.length - 1 - n)),
      ...this.ruled(), this.guides());
    this.svg.setAttribute("aria-valuemax", this.xs.length - 1);
    this.point(this.at, false);
  }

  scales(shown) {
    const { x, y } = this.options;
    const values = shown.flatMap((one) => one.y).filter((v) => v != null && (!y.log || v > 0));
    for (const rule of this.rules) values.push(rule.y);
    let low = Math.min(...values), high = Math.max(...values);
    if (y.range) [low, high] = [Math.min(low, y.range[0]), Math.max(high, y.range[1])];
    if (low === high) [low, high] = y.log ? [low / 2, high * 2] : [low - 1, high + 1];
    if (y.log) [low, high] = [low / 1.3, high * 1.3];
    else if (!y.range) [low, high] = [low - (high - low) / 25, high + (high - low) / 25];
    const xs = this.xs.filter((v) => !x.log || v > 0);
    let first = Math.min(...xs), last = Math.max(...xs);
    if (first === last) last = first + 1;
    this.y = scale(low, high, this.height - BOTTOM, TOP, y.log);
    this.x = scale(first, last, LEFT + 6, this.width - RIGHT, x.log);
  }

  axes() {
    const group = shape("g", { class: "axes" }), { x, y } = this.options;
    const bottom = this.height - BOTTOM;
    for (const value of y.ticks ?? this.y.ticks(6)) {
      const at = this.y(value);
      group.append(shape("path", { class: "grid", d: `M${LEFT} ${at}H${this.width - RIGHT}` }),
        shape("text", { x: LEFT - 7, y: at + 4, "text-anchor": "end" }, brief(value)));
    }
    for (const value of x.each ? this.xs : this.x.ticks(this.width < 340 ? 5 : 8).filter(Number.isInteger)) {
      const at = this.x(value);
      group.append(shape("path", { class: "tick", d: `M${at} ${bottom}v4` }),
        shape("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, x.each ? words(value) : brief(value)));
    }
    const middle = (LEFT + this.width - RIGHT) / 2;
    group.append(shape("path", { class: "domain", d: `M${LEFT} ${bottom}H${this.width - RIGHT}` }),
      shape("text", { class: "label", x: middle, y: this.height - 6, "text-anchor": "middle" }, x.label),
      shape("text", {
        class: "label", "text-anchor": "middle",
        transform: `translate(13 ${(TOP + bottom) / 2}) rotate(-90)`,
      }, y.label));
    return group;
  }

  /** Horizontal lines with their names; if two are close, the names are at different ends. */
  ruled() {
    const right = this.width - RIGHT, ends = [["start", LEFT + 6], ["end", right - 4], ["middle", (LEFT + right) / 2]];
    let before = -99, end = 0;
    const drawn = [...this.rules].sort((a, b) => a.y - b.y).map(({ y, label }) => {
      const at = this.y(y);
      end = Math.abs(at - before) < 16 ? (end + 1) % 3 : 0;
      before = at;
      return [shape("path", { d: `M${LEFT} ${at}H${right}` }), shape("text", { x: ends[end][1], y: at - 5, "text-anchor": ends[end][0] }, label)];
    });
    // Names above all lines, none of which strikes them through.
    return [0, 1].map((n) => shape("g", { class: "rule" }, ...drawn.map((one) => one[n])));
  }

  /** above: how many series are drawn over this one; its marks are larger, to be visible. */
  one(one, above) {
    const points = one.x.map((x, n) => [x, one.y[n]]);
    const place = ([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
    const seen = ([x, y]) => y != null && (!this.options.x.log || x > 0) && (!this.options.y.log || y > 0);
    if (!one.marks) {
      const drawn = points.filter(seen), lone = drawn.length === 1 ? circle(this.x(drawn[0][0]), this.y(drawn[0][1]), 3) : null;
      if (lone) return [shape("path", { class: `mark kept s${one.slot}`, d: lone })];
      const d = drawn.map((p, n) => (n ? "L" : "M") + place(p)).join("");
      return [shape("path", { class: `line s${one.slot}${broken(one)}`, d, ...dashes(one, 9) })];
    }
    const paths = {}, size = (one.small ? 2.2 : 3) + Math.min(1.5, 0.5 * above);
    points.forEach((point, n) => {
      if (!seen(point)) return;
      const mark = one.marks[n] ?? "kept", at = point.map((v, axis) => (axis ? this.y(v) : this.x(v)));
      paths[mark] = (paths[mark] ?? "") + MARKS[mark](...at, size);
      if (one.rings?.[n]) paths.ring = (paths.ring ?? "") + MARKS.ring(...at, size + 2);
    });
    return Object.entries(paths).map(([mark, d]) =>
      shape("path", { class: `mark ${mark} s${one.slot}`, d }));
  }

  guides() {
    this.guide = shape("path", { class: "guide", d: "" });
    const marked = shape("path", { class: "marked", d: "" });
    if (this.marked != null)
      marked.setAttribute("d", `M${this.x(this.marked)} ${TOP}V${this.height - BOTTOM}`);
    return shape("g", {}, marked, this.guide);
  }

  hover(event) {
    if (this.svg.classList.contains("silent")) return;
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * (this.width / box.width);
    let best = 0;
    this.xs.forEach((value, n) => {
      if (Math.abs(this.x(value) - x) < Math.abs(this.x(this.xs[best]) - x)) best = n;
    });
    this.point(best);
    this.options.over?.(this.xs[best], this);
  }

  leave() {
    this.point(null);
    this.options.over?.(null, this);
  }

  /** Shows a value of x that is selected in another chart. */
  follow(x, from) {
    const at = x == null ? null : this.xs?.indexOf(x) ?? -1;
    if (this.svg.classList.contains("silent") || at === -1) return;
    this.point(at, this === from || this.figure.offsetTop === from.figure.offsetTop);
  }

  point(at, show = true) {
    this.at = at;
    if (at == null || !this.guide) {
      this.tip.hidden = true;
      this.guide?.setAttribute("d", "");
      return;
    }
    const x = this.x(this.xs[at]);
    this.guide.setAttribute("d", `M${x} ${TOP}V${this.height - BOTTOM}`);
    const rows = this.series.filter((one) => one.y[at] != null);
    const head = `${this.options.x.name} ${words(this.xs[at])}`;
    const values = rows.map((one) => {
      const more = one.words?.[at] ? `, ${one.words[at]}` : "";
      return [one, `${words(one.y[at])}${this.options.y.unit ?? ""}${more}`];
    });
    this.svg.setAttribute("aria-valuenow", at);
    this.svg.setAttribute("aria-valuetext",
      [head, ...values.map(([one, text]) => `${one.label}: ${text}`)].join("; "));
    if (!show) return;
    this.tip.replaceChildren(el("b", {}, head), ...values.map(([one, text]) =>
      el("div", { class: `s${one.slot}` }, el("i", {}), `${one.label}: `, el("span", {}, text))));
    this.tip.hidden = false;
    const wide = this.tip.offsetWidth, share = this.box.clientWidth / this.width;
    // Below the axis, where it hides no data; above the chart where the window ends.
    const left = Math.min(Math.max(0, x * share - wide / 2), this.box.clientWidth - wide);
    const below = this.height - 22, tall = this.tip.offsetHeight;
    const fits = this.box.getBoundingClientRect().top + below + tall < innerHeight;
    this.tip.style.transform = `translate(${left}px, ${fits ? below : -tall}px)`;
  }

  press(event) {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 };
    const last = (this.xs?.length ?? 0) - 1;
    if (last < 0 || this.svg.classList.contains("silent")) return;
    let at = this.at ?? -1;
    if (event.key in steps) at = Math.min(last, Math.max(0, at + steps[event.key]));
    else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = last;
    else if ((event.key === "Enter" || event.key === " ") && this.at != null) this.options.pick?.(this.xs[this.at]);
    else if (event.key === "Escape") return this.leave();
    else return;
    event.preventDefault();
    this.point(at);
    this.options.over?.(this.xs[at], this);
  }

  export(kind) {
    this.point(null);
    const image = standalone(this);
    const text = new XMLSerializer().serializeToString(image);
    const blob = new Blob([text], { type: "image/svg+xml" });
    if (kind === "SVG") save(`${this.options.id}.svg`, blob);
    else picture(image, blob).then((png) => save(`${this.options.id}.png`, png));
  }
}

/** Finds series that are equal at every point: the first of them, and the number of each. */
function twins(series) {
  const close = (a, b) => a === b || (a != null && b != null && Math.abs(a - b) <= 1e-9 * Math.abs(a));
  const same = (a, b) => !a.marks === !b.marks && a.y.length === b.y.length && a.y.every((y, n) => close(y, b.y[n]));
  const first = series.map((one) => series.findIndex((other) => same(one, other)));
  return series.map((one, n) => {
    const group = first.flatMap((index, at) => (index === first[n] ? [at] : []));
    return { ...one, like: first[n] === n ? null : series[first[n]].label, order: group.indexOf(n), of: group.length };
  });
}

const named = (one) => (one.like == null ? one.label : `${one.label} (same as ${one.like.replace("as in the config", "the config")})`);
const broken = (one) => (one.dash && one.of === 1 ? " dash" : "");
/** Dashes for equal lines, so that their colours alternate. */
const dashes = (one, long) => (one.of === 1 ? {} : { "stroke-dasharray": `${long} ${long * (one.of - 1)}`, "stroke-dashoffset": -long * one.order });
const swatch = (one) => (one.marks ? shape("circle", { cx: 11, cy: 5, r: 4, class: "dot" })
  : shape("path", { d: "M1 5H21", class: `line s${one.slot}${broken(one)}`, ...dashes(one, 5) }));

const circle = (x, y, r) => `M${(x - r).toFixed(1)} ${y.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
const MARKS = {
  kept: circle,
  interpolated: circle,
  ring: circle,
  unused: circle,
  blended: (x, y, r) => `M${x.toFixed(1)} ${(y - r - 1).toFixed(1)}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z`,
};

function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low), b = f(high);
  const place = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  place.ticks = (count) => (log ? powers(low, high, count) : even(low, high, count));
  return place;
}

function powers(low, high, count) {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return even(low, high, 4).filter((v) => v > 0);
  const step = Math.ceil((last - first + 1) / count);
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, n) => 10 ** (first + n * step));
}

function even(low, high, count) {
  const rough = (high - low) / count, size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-dashoffset", "font-size", "font-weight",
  "font-family", "opacity", "paint-order", "stroke-linejoin"];

/** A copy that needs no style sheet, with its title, legend and note. */
function standalone(chart) {
  const copy = chart.svg.cloneNode(true);
  const before = chart.svg.querySelectorAll("*"), after = copy.querySelectorAll("*");
  before.forEach((node, n) => {
    const look = getComputedStyle(node);
    for (const name of KEPT) after[n].setAttribute(name, look.getPropertyValue(name));
    after[n].removeAttribute("class");
  });
  for (const name of [...copy.getAttributeNames()]) if (name !== "viewBox") copy.removeAttribute(name);
  const body = getComputedStyle(document.body), font = body.fontFamily;
  const rows = chart.series.map((one, n) => [one, getComputedStyle(chart.key.children[n]).color]);
  const top = 34 + 18 * rows.length, note = lines(chart.note.textContent, Math.floor((chart.width - 28) / 5.6));
  const quiet = getComputedStyle(chart.note).color, below = chart.height + top + 16;
  const text = (x, y, size, words, more = {}) => shape("text", { x, y, "font-size": size, ...more }, words);
  const head = shape("g", { "font-family": font, fill: body.color },
    text(14, 22, 15, chart.options.title, { "font-weight": 600 }));
  rows.forEach(([one, colour], n) => head.append(
    one.marks ? shape("circle", { cx: 24, cy: 40 + 18 * n, r: 4.5, fill: colour }) : shape("path", {
      d: `M14 ${40 + 18 * n}H34`, stroke: colour, "stroke-width": 2, "stroke-dasharray": broken(one) ? "6 4" : "none", ...dashes(one, 5),
    }),
    text(42, 44 + 18 * n, 12, named(one))));
  head.append(...note.map((line, n) => text(14, below + 15 * n, 11, line, { fill: quiet })));
  const inner = shape("g", { transform: `translate(0 ${top})` }, ...copy.childNodes);
  const height = below + 15 * note.length;
  return shape("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${chart.width} ${height}`, width: chart.width, height },
    shape("rect", { width: chart.width, height, fill: body.backgroundColor }), head, inner);
}

async function picture(image, blob) {
  const drawn = new Image(), address = URL.createObjectURL(blob);
  await new Promise((done, fail) => {
    drawn.onload = done;
    drawn.onerror = fail;
    drawn.src = address;
  });
  const canvas = el("canvas", { width: image.getAttribute("width") * 2, height: image.getAttribute("height") * 2 });
  canvas.getContext("2d").drawImage(drawn, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
