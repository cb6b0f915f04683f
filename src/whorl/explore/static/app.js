// The first page: a config, what inspect and doctor say, charts that follow the sliders.

import { $, ask, brief, copy, el, later, latest, save, words } from "./common.js";
import { Chart } from "./charts.js";
import { Dials } from "./dials.js";
import { read, write } from "./link.js";

const FRESH = { group: null, length: null, base: null, method: "config", factor: 4, trained: null, pair: null, distance: 16, pins: [] };
let start, known = {}, shown = null, own = null, began = null;
let state = { source: null, ...FRESH };

const say = (text) => { $("#say").textContent = text; };
function tell(where, text) {
  $(where).hidden = !text;
  $(where).textContent = text ?? "";
}

const pick = (pair) => { state.pair = state.pair === pair ? null : pair; render(); };
const over = (pair) => { for (const chart of [charts.wavelengths, charts.angles]) chart.follow(pair); };
const far = (x) => { for (const chart of [charts.likeness, charts.decay]) chart.follow(x); };
const pairs = { label: "pair, from fastest to slowest", name: "pair" };
const apart = { label: "distance, in tokens", name: "distance", log: true };
const charts = {
  wavelengths: new Chart($("#wavelengths"), {
    id: "wavelengths", title: "Wavelength of each pair", x: pairs, pick, over,
    y: { label: "tokens in a full turn", log: true, unit: " tokens" },
    note: "Disc: kept. Diamond: blended. Open: interpolated. Red ring: the pair meets angles at this length that it never took in training. Above a line, a pair does not come round within it.",
  }),
  angles: new Chart($("#angles"), {
    id: "angles", title: "Angle between two tokens", x: pairs, pick, over,
    y: { label: "degrees", range: [-180, 180], ticks: [-180, -90, 0, 90, 180], unit: "\u00b0" },
  }),
  likeness: new Chart($("#likeness"), {
    id: "likeness", title: "How alike distances look", x: apart, over: far,
    y: { label: "mean cosine of all pairs", range: [-0.2, 1] },
    note: "1 is distance 0. A curve that climbs again far out makes far tokens look near: aliasing. Drawn at 257 distances.",
  }),
  decay: new Chart($("#decay"), {
    id: "decay", title: "Decay with distance", x: apart, over: far,
    y: { label: "relative size", range: [-0.2, 1] },
  }),
};
const dials = new Dials($("#turning"));

// Charts ---------------------------------------------------------------------------------------

function choices() {
  const changed = state.method !== "config" || state.base != null;
  const focus = { method: state.method, factor: state.factor, base: state.base };
  return changed ? [focus, ...state.pins] : state.pins;
}

const slot = (n) => (n === 0 ? 0 : choices().length > state.pins.length ? n : n + 1);

const look = latest(async () => {
  if (!state.source) return;
  const asked = { source: state.source, group: state.group, length: state.length, distance: state.distance, trained: state.trained, choices: choices(), ...own };
  const since = began;
  began = null;
  try {
    shown = await ask("view", asked);
    tell("#view-error", shown.curves.filter((one) => one.error).map((one) => `${one.label}: ${one.error}`).join(" "));
    tell("#own-error", null);
  } catch (error) {
    if (own && /q and k|explore: [qk] must/.test(error.message)) {
      own = null;
      tell("#own-error", error.message);
      look();
      return;
    }
    shown = null;
    tell("#view-error", error.message);
    for (const chart of Object.values(charts)) chart.draw({ message: "Nothing to draw; the reason is above." });
    $("#turning").hidden = true;
    $("#live").textContent = "";
    return;
  }
  draw();
  if (since != null) requestAnimationFrame(() => performance.measure("slider", { start: since, end: performance.now() }));
});

function draw() {
  const { curves } = shown;
  const numbered = curves.map((one, n) => [one, n]).filter(([one]) => !one.error);
  const x = curves[0].inv_freq.map((_, n) => n);
  const rules = [];
  const rule = (y, label) => y && !rules.some((one) => one.y === y) && rules.push({ y, label: `${label} ${words(y)}` });
  rule(shown.trained, "trained on");
  rule(shown.window, "window");
  rule(shown.length, "length");
  const told = (one, n) => [one.statuses[n], one.factors[n] && one.factors[n] !== 1 ? `slower by ${words(one.factors[n])}` : null, one.new[n] ? "new angles" : null].filter(Boolean).join(", ");
  charts.wavelengths.draw({
    rules, marked: state.pair,
    series: numbered.map(([one, n]) => ({
      label: one.label, slot: slot(n), x, y: one.wavelengths, marks: x.map((i) => one.statuses[i] ?? "kept"),
      rings: n === shown.focus || curves.length === 1 ? one.new : [], words: x.map((i) => told(one, i)),
    })),
  });
  charts.angles.draw({
    marked: state.pair,
    series: numbered.map(([one, n]) => ({ label: one.label, slot: slot(n), x, y: one.angles, marks: x.map(() => "kept"), small: true })),
    note: `Two tokens ${words(shown.distance)} apart, the distance of the dials below; fast pairs have come round often, slow ones have hardly moved.`,
  });
  const message = shown.distances.length ? null : `No chart, because ${shown.why}`;
  const lines = (values) => numbered.filter(([, n]) => values[n]).map(([one, n]) => ({ label: one.label, slot: slot(n), x: shown.distances, y: values[n], dash: n === 0 && curves.length > 1 }));
  charts.likeness.draw({ message, series: message ? [] : lines(shown.likeness) });
  const focus = curves[shown.focus]?.label;
  charts.decay.draw({
    message,
    series: message ? [] : [...lines(shown.envelopes.map((one) => one && one.map((v) => v / one[0]))).map((one) => ({ ...one, label: `envelope, ${one.label}` })),
      ...shown.scores.map((one, n) => ({ label: `score, ${one.name}`, slot: 8 + n, dash: n === 1, x: shown.distances, y: one.mean }))],
    note: message ? "" : `Envelope f(m) over f(0) = ${words(shown.envelopes[shown.focus][0])}; scores over |q| |k|, ${focus}, attention scale and all, means over ${shown.scores[0].count} random q and k. Scores of unrelated q and k do not fall: they stay around 0.`,
  });
  const turning = curves[shown.focus ?? 0];
  $("#turning").hidden = false;
  dials.show({ frequencies: turning.inv_freq, wavelengths: turning.wavelengths, chosen: state.pair, distance: shown.distance, likeness: turning.likeness, label: turning.label });
  const now = numbered.at(numbered.length > 1 ? 1 : 0)[0];
  const reach = now.reach == null ? "" : `; no new angle up to ${words(now.reach)} tokens`;
  const fresh = now.new.filter(Boolean).length;
  $("#live").textContent = `${now.label}, at ${words(shown.length)} tokens: ${fresh ? `${fresh} pairs meet new angles` : now.new.length ? "no pair meets a new angle" : "new angles are not known"}${reach}; attention scale ${words(now.attention_scale)}.`;
}

// What inspect and doctor say ------------------------------------------------------------------

const tellAll = latest(async () => {
  if (!state.source) return;
  const asked = { source: state.source, group: state.group, length: state.length, trained: state.trained, choice: { method: state.method, factor: state.factor, base: state.base } };
  try {
    known = await ask("report", asked);
  } catch (error) {
    known = { groups: [], frameworks: [], findings: [], counts: {}, notes: [], problem: error.message };
  }
  tell("#config-error", "text" in state.source || !known.groups.length ? known.problem : null);
  said();
});

function said() {
  $("#verdict").textContent = known.verdict ?? `This cannot be read: ${known.problem ?? "no reason given."}`;
  const rows = (facts) => facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  $("#facts").replaceChildren(
    ...known.groups.map((group) => el("details", {}, el("summary", {}, group.title), el("dl", {}, ...rows(group.facts)))),
    ...(known.frameworks.length ? [el("details", {}, el("summary", {}, "How others read it"), el("dl", {}, ...rows(known.frameworks.map((one) => [one.framework, [one.outcome + (one.differs.length ? ` (${one.differs.join(", ")})` : ""), ...one.remarks].join(". ")]))))] : []),
    ...known.notes.map((note) => el("p", { class: "quiet" }, note)));
  const counts = Object.entries(known.counts).filter(([, n]) => n).map(([name, n]) => `${n} ${name}${n > 1 ? "s" : ""}`);
  const clean = Object.keys(known.counts).length ? "Nothing found." : "Not examined, because it cannot be read.";
  $("#counts").textContent = counts.length ? `${counts.join(", ")}.` : clean;
  $("#findings").replaceChildren(...known.findings.map((one) => el("li", { class: one.severity },
    el("p", {}, el("b", {}, one.severity), " ", el("code", {}, one.rule), one.where ? ` at ${one.where}` : ""),
    el("p", {}, one.message), el("p", { class: "quiet" }, one.remedy))));
  for (const id of ["#copy-config", "#save-config"]) $(id).disabled = !known.config;
  $("#config-why").textContent = known.config ? "" : `No config to copy: ${known.why ?? known.problem ?? "it is not JSON."}`;
  controls();
}

// Controls -------------------------------------------------------------------------------------

function controls() {
  const turning = known.groups?.filter((group) => group.rotates) ?? [];
  $("#group-row").hidden = turning.length < 2;
  $("#group").replaceChildren(...turning.map((group) => el("option", { value: group.index }, group.title)));
  if (turning.length) $("#group").value = state.group ?? known.group;
  const set = (id, value, of) => {
    const range = $(`#${id}`), box = $(`#${id}-number`);
    if (document.activeElement !== range) range.value = of(value);
    if (document.activeElement !== box) box.value = value;
    range.setAttribute("aria-valuetext", words(value));
  };
  const length = state.length ?? Math.min(known.context ?? 4096, start.longest);
  set("length", length, Math.log2);
  const base = state.base ?? known.base;
  for (const id of ["#base", "#base-number", "#base-reset"]) $(id).disabled = known.base == null;
  if (base != null) set("base", base, Math.log10);
  else $("#base-number").value = "";
  $("#base-reset").hidden = state.base == null;
  $("#method").value = state.method;
  $("#factor-row").hidden = ["config", "none"].includes(state.method);
  set("factor", state.factor, Math.log2);
  set("distance", state.distance, (v) => Math.log2(v + 1));
  const fixed = known.trained != null;
  $("#trained").disabled = fixed;
  if (document.activeElement !== $("#trained")) $("#trained").value = known.trained ?? state.trained ?? "";
  $("#trained-note").textContent = fixed ? "" : "The config does not say; extensions and new angles need it.";
  $("#trained-row").hidden = fixed || known.groups == null || !!known.problem;
  $("#pin").disabled = choices().length === state.pins.length || choices().length >= start.most_curves - 1;
  $("#pins").replaceChildren(...state.pins.map((one, n) => el("li", { class: `s${slot(n + choices().length - state.pins.length + 1)}` },
    el("i", {}), el("span", {}, label(one)), el("button", { type: "button", class: "small", "aria-label": `Remove ${label(one)}`, onclick: () => { state.pins.splice(n, 1); moved(); } }, "remove"))));
  $("#preset").value = state.source?.preset ?? (state.source?.given ? ":given" : ":text");
}

const label = (one) => [start.methods[one.method] + (["config", "none"].includes(one.method) ? "" : ` x ${words(one.factor)}`), one.base == null ? null : `base ${brief(one.base)}`].filter(Boolean).join(", ");

const remember = later(300, () => {
  const link = write(state);
  history.replaceState(null, "", link ?? location.pathname);
});
const tellSoon = later(200, tellAll);

/** Something changed: charts at once, words a little later. */
function moved() {
  began ??= performance.now();
  controls();
  look();
  tellSoon();
  remember();
}

const render = () => { controls(); if (shown) draw(); remember(); };

async function open(source, more = {}) {
  state = { ...state, source, group: null, length: null, base: null, trained: null, pair: null, ...more };
  known = {};
  own = null;
  controls();
  await Promise.all([tellAll(), look()]);
  remember();
}

/** Numbers that sliders give: three digits are enough where the scale is a logarithm. */
const three = (value) => Number(value.toPrecision(3));

function wire(id, key, from, check) {
  $(`#${id}`).addEventListener("input", (event) => { state[key] = from(Number(event.target.value)); moved(); });
  $(`#${id}-number`).addEventListener("change", (event) => {
    const value = event.target.valueAsNumber;
    if (!check(value)) {
      tell("#view-error", `${id} ${event.target.value || "nothing"} is out of range: ${check.words}.`);
      event.target.setAttribute("aria-invalid", "true");
      return;
    }
    event.target.removeAttribute("aria-invalid");
    state[key] = value;
    moved();
  });
}

function range(least, most, whole) {
  const check = (value) => value >= least && value <= most && (!whole || Number.isInteger(value));
  check.words = `a ${whole ? "whole " : ""}number from ${words(least)} to ${most.toLocaleString("en")}`;
  return check;
}

function listen() {
  const tokens = (v) => (Number.isInteger(v) ? 2 ** v : Math.round(2 ** v));
  wire("length", "length", tokens, range(1, start.longest, true));
  wire("base", "base", (v) => three(10 ** v), range(1, 1e15));
  wire("factor", "factor", (v) => three(2 ** v), range(0.001, 1e6));
  wire("distance", "distance", (v) => Math.round(2 ** v - 1), range(0, start.longest, true));
  $("#base-reset").addEventListener("click", () => { state.base = null; moved(); });
  $("#method").addEventListener("change", (event) => { state.method = event.target.value; moved(); });
  $("#group").addEventListener("change", (event) => { state.group = Number(event.target.value); state.pair = null; moved(); });
  $("#trained").addEventListener("change", (event) => {
    const value = event.target.valueAsNumber;
    state.trained = Number.isInteger(value) && value > 0 ? value : null;
    moved();
  });
  $("#pin").addEventListener("click", () => {
    state.pins.push({ method: state.method, factor: state.factor, base: state.base });
    say(`${label(state.pins.at(-1))} stays on the charts.`);
    moved();
  });
  $("#reset").addEventListener("click", () => { state = { source: state.source, ...FRESH, pins: [] }; own = null; moved(); });
  $("#preset").addEventListener("change", (event) => {
    const value = event.target.value;
    if (value === ":text") { $("#paste").open = true; $("#text").focus(); }
    else open(value === ":given" ? { given: true } : { preset: value });
  });
  $("#read").addEventListener("click", () => open({ text: $("#text").value }));
  $("#file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    if (kind === "drop") take(event.dataTransfer.files[0]);
  });
  $("#copy-config").addEventListener("click", () => copy(known.config, "Config", say));
  $("#save-config").addEventListener("click", () => save("config.json", new Blob([known.config], { type: "application/json" })));
  $("#copy-link").addEventListener("click", () => {
    const link = write(state);
    if (!link) return say("This config is too long for a link, or is a file of this machine; send the config instead.");
    return copy(new URL(link, location.href).href, "Link", say);
  });
  $("#use-own").addEventListener("click", () => { own = { q: numbers($("#q").value), k: numbers($("#k").value) }; look(); });
  $("#drop-own").addEventListener("click", () => { own = null; tell("#own-error", null); look(); });
  window.addEventListener("hashchange", restore);
}

const numbers = (text) => text.replace(/[[\](),;]/g, " ").split(/\s+/).filter(Boolean).map((word) => { const value = Number(word); return Number.isFinite(value) ? value : word; });

async function take(file) {
  if (!file) return;
  if (file.size > 900000) return tell("#config-error", `${file.name} has ${file.size.toLocaleString("en")} bytes; a config has at most 900,000. Take config.json, not the weights.`);
  $("#text").value = await file.text();
  $("#paste").open = true;
  await open({ text: $("#text").value });
}

/** The view of the link, or the one to begin with. */
async function restore() {
  const found = read(location.hash, start);
  const source = found.source ?? (start.given ? { given: true } : { preset: start.preset });
  if (source.text) { $("#text").value = source.text; $("#paste").open = true; }
  state = { ...state, ...FRESH, pins: [] };
  await open(source, found.view);
}

async function begin() {
  try {
    start = await ask("start");
  } catch (error) {
    return tell("#view-error", error.message);
  }
  $("#version").textContent = start.version;
  $("#preset").append(...(start.given ? [el("option", { value: ":given" }, start.given)] : []),
    ...start.presets.map((name) => el("option", { value: name }, name)),
    el("option", { value: ":text" }, "a pasted config"));
  $("#method").append(...Object.entries(start.methods).map(([name, title]) => el("option", { value: name }, title)));
  listen();
  await restore();
  document.body.dataset.ready = "yes";
}

begin();
