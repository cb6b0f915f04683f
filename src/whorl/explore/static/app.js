// The first page: a config, the results of inspect and doctor, charts that change with the sliders.

import { $, ask, brief, copy, el, later, latest, save, tell, words } from "./common.js";
import { Dials } from "./dials.js";
import { Extension } from "./extend.js";
import { Fields } from "./fields.js";
import { limits, vector } from "./limits.js";
import { read, write } from "./link.js";
import { showReport } from "./report.js";
import { countNewAngles, envelopeOf, listByDistance, listRules, listWavelengths, makeChart, makeHeatMap, makePart } from "./views.js";

const FRESH = { group: null, length: null, base: null, method: "config", factor: 4, trained: null, pair: null, distance: 16, pins: [] };
const PLAIN = ["config", "none"];
let start, fields, known = {}, shown = null, own = null, began = null;
/** The colour of the current curve; it does not change when the curve is kept. */
let hue = 1;
let state = { source: null, ...FRESH };
/** Errors: of the report, of the view (a fault, or why there are no charts), and of q and k. */
const trouble = { report: null, look: null, view: null, own: null };

const say = (text) => { $("#say").textContent = text; };

const pick = (pair) => { state.pair = state.pair === pair ? null : pair; render(); };
const over = (pair, from) => { for (const chart of [charts.wavelengths, charts.angles]) chart.follow(pair, from); };
const far = (x, from) => { for (const chart of [charts.likeness, charts.decay]) chart.follow(x, from); };
const charts = {
  wavelengths: makeChart("wavelengths", { pick, over }),
  angles: makeChart("angles", { pick, over }),
  likeness: makeChart("likeness", { over: far }),
  decay: makeChart("decay", { over: far, y: { label: "relative size", range: [-0.2, 1] } }),
};
const heat = makeHeatMap();
const dials = new Dials($("#dials"));
const extension = new Extension($("#longer"), () => ({ source: state.source, trained: known.trained == null ? state.trained : null }));

// Charts ---------------------------------------------------------------------------------------

const focus = () => ({ method: state.method, factor: PLAIN.includes(state.method) ? null : state.factor, base: state.base });
const equal = (a, b) => a.method === b.method && a.factor === b.factor && a.base === b.base;
const asItIs = () => state.method === "config" && state.base == null;

/** The curves besides the config's, each once, with their colours. */
function choices() {
  const pins = state.pins.map(({ slot, ...choice }) => ({ choice, slot }));
  if (asItIs()) return pins;
  const kept = pins.find((one) => equal(one.choice, focus()));
  return [{ choice: focus(), slot: kept?.slot ?? unused() }, ...pins.filter((one) => one !== kept)];
}

/** A colour for the current curve: the one it has, unless a kept curve has it. */
function unused() {
  const taken = state.pins.map((one) => one.slot);
  for (let n = 1; taken.includes(hue); n += 1) hue = n;
  return hue;
}

const slot = (n) => (n === 0 ? 0 : shown.slots[n - 1]);

const look = latest(async () => {
  if (!state.source) return;
  const asked = { source: state.source, group: state.group, length: state.length, distance: state.distance, trained: state.trained, choices: choices().map((one) => one.choice), ...own };
  const since = began, slots = choices().map((one) => one.slot), focused = !asItIs();
  began = null;
  try {
    shown = { ...await ask("view", asked), slots, focused, asked: asked.choices };
    Object.assign(trouble, { look: null, view: null });
  } catch (error) {
    if (own && !error.fault) {  // Try without q and k, which may be the only problem.
      own = null;
      trouble.own = error.message;
      return look();
    }
    shown = null;
    if (trouble.own === error.message) trouble.own = null;
    Object.assign(trouble, error.fault ? { look: error.message, view: null } : { look: null, view: error.message });
    return troubled();
  }
  if (state.pair != null && state.pair >= shown.curves[0].inv_freq.length) {
    say(`There is no pair ${words(state.pair)} here; there are ${shown.curves[0].inv_freq.length}.`);
    state.pair = null;
  }
  troubled();
  draw();
  controls();
  if (since != null) requestAnimationFrame(() => performance.measure("slider", { start: since, end: performance.now() }));
});

/** Shows each error in one place. */
function troubled() {
  const unread = known.problem != null && known.verdict == null;
  const faults = [...new Set([trouble.report, trouble.look].filter(Boolean))];
  tell("#fault", faults.join(" "));
  tell("#config-error", unread ? known.problem : null);
  tell("#own-error", trouble.own);
  const bad = shown?.curves.filter((one) => one.error).map((one) => `${one.label}: ${one.error}`).join(" ");
  tell("#view-error", shown ? bad : trouble.view === known.problem ? null : trouble.view);
  $("#method-note").textContent = shown?.curves.find((one) => one.method === state.method)?.note ?? "";
  if (shown) return;
  const why = faults.length ? "Nothing to draw; the reason is above." : unread ? "Nothing to draw, because the config cannot be read."
    : known.problem ?? "Nothing to draw; the reason is above.";
  for (const chart of Object.values(charts)) chart.draw({ message: why });
  heat.draw([], why);
  $("#dials").hidden = true;
  $("#live").textContent = "";
}

function draw() {
  const { curves } = shown;
  const parts = curves.flatMap((one, n) => (one.error ? [] : [makePart(shown, n, one.label, slot(n))]));
  charts.wavelengths.draw({
    series: listWavelengths(parts), marked: state.pair,
    rules: listRules([[shown.trained, "trained on"], [shown.window, "window"], [shown.length, "length"]]),
  });
  const x = curves[0].inv_freq.map((_, n) => n);
  charts.angles.draw({
    marked: state.pair,
    series: parts.map(({ label, slot, curve }) => ({ label, slot, x, y: curve.angles, marks: x.map(() => "kept"), small: true })),
    note: `Two tokens ${words(shown.distance)} apart, the distance of the dials below; fast pairs have rotated many times, slow ones hardly at all.`,
  });
  drawByDistance(parts);
  const current = curves[shown.focus ?? 0];
  $("#dials").hidden = false;
  dials.show({ frequencies: current.inv_freq, wavelengths: current.wavelengths, chosen: state.pair, distance: shown.distance, likeness: current.likeness, label: current.label });
  const now = parts.at(parts.length > 1 ? 1 : 0).curve;
  const upto = now.reach > start.limits.length.most ? "at any length shown here" : `up to ${words(now.reach)} tokens`;
  const reach = now.reach == null ? "" : `; ${now.follows ? "with the frequencies of this length, " : ""}no out-of-distribution angle ${upto}`;
  if (shown.focused && curves[1].error) $("#live").textContent = `${curves[1].label} cannot be drawn; the reason is above.`;
  else $("#live").textContent = `${now.label}, at ${words(shown.length)} tokens: ${countNewAngles(now)}${reach}; attention scale ${words(now.attention_scale)}.`;
}

function drawByDistance(parts) {
  const message = shown.distances.length ? null : `No chart, because ${shown.why}`;
  heat.draw(parts, message);
  charts.likeness.draw({ message, series: listByDistance(parts, (one) => one.likeness) });
  if (message) return charts.decay.draw({ message });
  const envelopes = listByDistance(parts, envelopeOf).map((one) => ({ ...one, label: `envelope, ${one.label}` }));
  const scores = shown.scores.map((one, n) => ({ label: `score, ${one.name}`, slot: 8 + n, dash: n === 1, x: shown.distances, y: one.mean }));
  const why = shown.why_no_scores ? `no scores, because ${shown.why_no_scores}`
    : `scores over |q| |k|, ${shown.curves[shown.focus]?.label}, with the attention scale, means over ${shown.scores[0].count} random q and k. Scores of unrelated q and k do not fall: they stay around 0.`;
  charts.decay.draw({ series: [...envelopes, ...scores], note: `Envelope f(m) over f(0) = ${words(shown.envelopes[shown.focus][0])}; ${why}` });
}

// Results of inspect and doctor ----------------------------------------------------------------

const tellAll = latest(async () => {
  if (!state.source) return;
  const asked = { source: state.source, group: state.group, length: state.length, trained: state.trained, choice: { method: state.method, factor: state.factor, base: state.base } };
  const nothing = { groups: [], frameworks: [], findings: [], counts: {}, notes: [] };
  try {
    known = await ask("report", asked);
    trouble.report = null;
  } catch (error) {
    known = error.fault ? nothing : { ...nothing, problem: error.message };
    trouble.report = error.fault ? error.message : null;
  }
  troubled();
  showReport(known, trouble.report != null);
  dialects();
  controls();
  extension.refresh(known.problem == null && trouble.report == null);
});

/** The dialects in which the config is offered, its own first. */
function dialects() {
  const offered = Object.keys(known.configs ?? {}), chosen = $("#dialect").value;
  $("#dialect-row").hidden = offered.length === 0;
  refill($("#dialect"), offered.map((name) => [name, name === known.dialect]), ([name, same]) => el("option", { value: name }, same ? `${name} (original)` : name));
  if (offered.includes(chosen)) $("#dialect").value = chosen;
  for (const id of ["#copy-config", "#save-config"]) $(id).disabled = !config();
  $("#config-why").textContent = config() ? "" : known.why ? `No config to copy: ${known.why}` : "No config to copy.";
  tell("#config-warning", (known.warnings ?? []).map((text) => `Warning: ${text}`).join(" "));
}

const config = () => known.configs?.[$("#dialect").value] ?? known.config;

// Controls -------------------------------------------------------------------------------------

function controls() {
  fields.limits = limits(start, state.method);
  const rotating = known.groups?.filter((group) => group.rotates) ?? [];
  $("#group-row").hidden = rotating.length < 2;
  refill($("#group"), rotating.map((group) => [group.index, group.title]), ([value, title]) => el("option", { value }, title));
  if (rotating.length) $("#group").value = state.group ?? known.group;
  const set = (id, value, of) => {
    const range = $(`#${id}`);
    if (document.activeElement !== range) range.value = of(value);
    fields.show(id, value);
    range.setAttribute("aria-valuetext", words(value));
  };
  const length = state.length ?? Math.min(known.context ?? 4096, start.limits.length.most);
  set("length", length, Math.log2);
  const base = state.base ?? known.base;
  for (const id of ["#base", "#base-number", "#base-reset"]) $(id).disabled = known.base == null;
  if (base != null) set("base", base, Math.log10);
  else $("#base-number").value = "";
  $("#base-reset").hidden = state.base == null;
  $("#method").value = state.method;
  $("#factor-row").hidden = PLAIN.includes(state.method);
  set("factor", state.factor, Math.log2);
  set("distance", state.distance, (v) => Math.log2(v + 1));
  const fixed = known.trained != null;
  $("#trained").disabled = fixed;
  fields.show("trained", known.trained ?? state.trained ?? "");
  $("#trained-note").textContent = fixed ? "" : "The config does not contain it; extensions and out-of-distribution angles need it.";
  $("#trained-row").hidden = fixed || known.groups == null || !!known.problem;
  const why = unkept();
  $("#pin").setAttribute("aria-disabled", String(why != null));  // not disabled, because that would lose the focus
  $("#pin-why").textContent = why ?? "";
  refill($("#pins"), state.pins.map((one) => [label(one), one.slot]), ([name, colour], n) => el("li", { class: `s${colour}` },
    el("i", {}), el("span", {}, name), el("button", { type: "button", class: "small", "aria-label": `Remove ${name}`, onclick: () => unpin(n) }, "remove")));
  $("#preset").value = state.source?.preset ?? (state.source?.given ? ":given" : ":text");
}

/** Replaces the children only if the rows have changed, so that the focus is not lost. */
function refill(node, rows, make) {
  const now = JSON.stringify(rows);
  if (node.dataset.rows === now) return;
  node.dataset.rows = now;
  node.replaceChildren(...rows.map(make));
}

/** Raises the factor if the method accepts none as small. */
function fitted() {
  const { least } = limits(start, state.method).factor;
  if (!PLAIN.includes(state.method) && state.factor < least) {
    state.factor = least;
    say(`Factor is ${words(least)} now, the least that ${start.methods[state.method]} accepts.`);
  }
  fields.settle("factor");
  fields.box("factor").value = state.factor;  // even while the focus is there
}

function pin() {
  if (unkept()) return say(unkept());
  state.pins.push({ ...focus(), slot: unused() });
  say(`${label(focus())} stays on the charts.`);
  return moved();
}

function unpin(n) {
  const [gone] = state.pins.splice(n, 1);
  if (equal(gone, focus())) hue = gone.slot;
  say(`${label(gone)} was removed from the charts.`);
  moved();
  ($("#pins").children[Math.min(n, state.pins.length - 1)]?.querySelector("button") ?? $("#pin")).focus();
}

/** Why the current curve cannot be kept; null if it can. */
function unkept() {
  const most = start.most_curves - 2;
  if (asItIs()) return "The config itself is always drawn. Choose a method or a base to keep one beside it.";
  if (shown?.asked.some((one, n) => equal(one, focus()) && shown.curves[n + 1].error)) return `${label(focus())} cannot be drawn, so there is nothing to keep.`;
  if (state.pins.some((one) => equal(one, focus()))) return `${label(focus())} is kept. Change something to keep another.`;
  return state.pins.length >= most ? `${most} are kept, which is the limit. Remove one to keep another.` : null;
}

const label = (one) => [start.methods[one.method] + (PLAIN.includes(one.method) ? "" : ` x ${words(one.factor)}`), one.base == null ? null : `base ${brief(one.base)}`].filter(Boolean).join(", ");

const remember = later(300, () => {
  const link = write(state);
  history.replaceState(null, "", link ?? location.pathname);
});
const tellSoon = later(200, tellAll);

/** After a change: draws charts at once, and updates the report a little later. */
function moved() {
  began ??= performance.now();
  controls();
  look();
  tellSoon();
  remember();
}

const render = () => { controls(); if (shown) draw(); remember(); };

async function open(source, more = {}) {
  if (source.text?.length > start.most_text) return tooLong("This text", source.text.length);
  state = { ...state, source, group: null, length: null, base: null, trained: null, pair: null, ...more };
  known = {};
  own = null;
  trouble.own = null;
  fields.settle();
  fields.refuse(null);
  tell("#link-error", null);
  unread();
  controls();
  await Promise.all([tellAll(), look()]);
  remember();
}

function tooLong(what, size) {
  fields.refuse("The last text was not read; the results are for the config before it.");
  return tell("#config-error", `${what} has ${size.toLocaleString("en")} bytes; a config has at most ${start.most_text.toLocaleString("en")}. Use config.json, not the weights.`);
}

/** The number of a slider: three digits are enough on a logarithmic scale. */
const three = (value) => Number(value.toPrecision(3));

function wire(id, from) {
  $(`#${id}`).addEventListener("input", (event) => { fields.settle(id); state[id] = from(Number(event.target.value)); moved(); });
  fields.listen(id);
}

/** Says that the text in the field is not the config that is shown. */
function unread() {
  const text = $("#text").value;
  tell("#unread", text.trim() && text !== state.source?.text ? "Not read yet: the page shows another config. \u201cRead it\u201d reads this one." : null);
}

function useOwn() {
  try {
    own = { q: vector("q", $("#q").value), k: vector("k", $("#k").value) };
    trouble.own = null;
  } catch (error) {
    own = null;
    trouble.own = error.message;
  }
  tell("#undrawn", null);
  troubled();
  look();
}

function listen() {
  const tokens = (v) => (Number.isInteger(v) ? 2 ** v : Math.round(2 ** v));
  wire("length", tokens);
  wire("base", (v) => three(10 ** v));
  wire("factor", (v) => three(2 ** v));
  wire("distance", (v) => Math.round(2 ** v - 1));
  fields.listen("trained", null);
  $("#base-reset").addEventListener("click", () => { fields.settle("base"); state.base = null; moved(); $("#base-number").focus(); });
  $("#method").addEventListener("change", (event) => { state.method = event.target.value; fitted(); moved(); });
  $("#group").addEventListener("change", (event) => { state.group = Number(event.target.value); state.pair = null; moved(); });
  $("#pin").addEventListener("click", pin);
  $("#reset").addEventListener("click", () => { hue = 1; open(state.source, { ...FRESH, pins: [] }); });
  $("#preset").addEventListener("change", (event) => {
    const value = event.target.value;
    if (value === ":text") { $("#paste").open = true; $("#text").focus(); }
    else open(value === ":given" ? { given: true } : { preset: value });
  });
  $("#read").addEventListener("click", () => open({ text: $("#text").value }));
  $("#text").addEventListener("input", unread);
  $("#text").addEventListener("paste", () => setTimeout(() => open({ text: $("#text").value })));
  document.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text") ?? "";
    if (event.target.closest?.("input, textarea, select") || !text.trim().startsWith("{")) return;
    pasted(text);
  });
  $("#file").addEventListener("change", (event) => { take(event.target.files[0]); event.target.value = ""; });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    if (kind === "drop") take(event.dataTransfer.files[0]);
  });
  $("#copy-config").addEventListener("click", () => copy(config(), "Config", say));
  $("#save-config").addEventListener("click", () => save("config.json", new Blob([config()], { type: "application/json" })));
  $("#copy-link").addEventListener("click", () => {
    const link = write(state);
    if (!link) return say("This config is too long for a link; send the config instead.");
    const less = [own ? "your own q and k are not in it" : null, state.source.given ? `it needs whorl explore with ${start.given}` : null].filter(Boolean);
    return copy(new URL(link, location.href).href, "Link", (text) => say([text, ...less.map((one) => `${one[0].toUpperCase()}${one.slice(1)}.`)].join(" ")));
  });
  $("#use-own").addEventListener("click", useOwn);
  $("#drop-own").addEventListener("click", () => { own = null; trouble.own = null; tell("#undrawn", null); troubled(); look(); });
  for (const id of ["#q", "#k"]) $(id).addEventListener("input", () => tell("#undrawn", own ? "Changed, and not drawn yet." : null));
  // Not by a link, because the fragment contains the view.
  $(".skip").addEventListener("click", (event) => { event.preventDefault(); $("#results").focus(); });
  window.addEventListener("hashchange", restore);
}

async function pasted(text) {
  $("#text").value = text;
  $("#paste").open = true;
  await open({ text });
}

async function take(file) {
  if (!file) return;
  if (file.size > start.most_text) return tooLong(file.name, file.size);
  await pasted(await file.text());
}

/** Shows the view of the link, or the first view. */
async function restore() {
  const found = read(location.hash, start);
  const source = found.source ?? (start.given ? { given: true } : { preset: start.preset });
  if (source.text) { $("#text").value = source.text; $("#paste").open = true; }
  state = { ...state, ...FRESH, pins: [] };
  const rest = found.source || start.given || location.hash.length < 2 ? "" : ` ${start.preset} is shown.`;
  hue = found.view.pins.length + 1;
  const pins = found.view.pins.map((one, n) => ({ ...one, slot: n + 1 }));
  const opened = open(source, { ...found.view, pins });
  tell("#link-error", found.problems.length ? `Parts of the link are not valid and were ignored. ${found.problems.join(" ")}${rest}` : null);
  await opened;
}

async function begin() {
  try {
    start = await ask("start");
  } catch (error) {
    return tell("#fault", error.message);
  }
  $("#version").textContent = start.version;
  $("#preset").append(...(start.given ? [el("option", { value: ":given" }, start.given)] : []),
    ...start.presets.map((name) => el("option", { value: name }, name)),
    el("option", { value: ":text" }, "a pasted config"));
  $("#method").append(...Object.entries(start.methods).map(([name, title]) => el("option", { value: name }, title)));
  $("#not-offered").textContent = start.not_offered.join(" ");
  fields = new Fields(limits(start, state.method), (key, value) => { state[key] = value; moved(); });
  listen();
  await restore();
  document.body.dataset.ready = "yes";
}

begin();
