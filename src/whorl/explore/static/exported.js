// The page in one file, and the page of two models: charts of steps that were computed before.

import { $, copy, el, save, tell, words } from "./common.js";
import { Chart } from "./charts.js";
import { HeatMap } from "./heat.js";

const page = JSON.parse($("#data").textContent);
const pairAxis = { label: "pair, from fastest to slowest", name: "pair" };
const distanceAxis = { label: "distance, in tokens", name: "distance", log: true };
const drawn = {
  wavelengths: new Chart($("#wavelengths"), {
    id: "wavelengths", title: "Wavelength of each pair", x: pairAxis,
    y: { label: "tokens in a full rotation", log: true, unit: " tokens" },
    note: "Disc: kept. Diamond: blended. Open: interpolated. Red ring: the pair has out-of-distribution angles at this length.",
  }),
  likeness: new Chart($("#likeness"), {
    id: "likeness", title: "How alike distances look", x: distanceAxis,
    y: { label: "mean cosine of all pairs", range: [-0.2, 1] },
    note: "1 is distance 0. Where a curve rises again, far tokens look near: aliasing.",
  }),
  decay: new Chart($("#decay"), {
    id: "decay", title: "Decay with distance", x: distanceAxis, y: { label: "envelope, f(m) / f(0)", range: [0, 1] },
    note: "The bound of RoFormer, section 3.4.3: an upper limit for what is left of a score.",
  }),
};
const heat = new HeatMap($("#heat"), "Scores by pair and distance",
  "The cosine that each pair adds to a score: blue 1, orange -1; fast pairs above, distances on a logarithmic scale. An extension makes the bands of slow pairs wider.");
const view = { group: page.models[0].first, method: "config", factor: 4 };

const groupOf = (model, n = 0) => (n ? model.groups.find((one) => one.index === model.first) : model.groups.find((one) => one.index === view.group)) ?? model.groups[0];
const factors = () => groupOf(page.models[0]).steps.filter((one) => one.method === view.method).map((one) => one.factor);
const find = (steps) => steps.find((one) => one.method === view.method && (one.method === "config" || one.factor === view.factor)) ?? steps[0];

/** The curves to draw: [{label, slot, curve, likeness, envelope, heat, distances}]. */
function collect() {
  if (page.difference)
    return page.models.map((model, n) => part(groupOf(model, n).steps[0], 0, model.name, n + 1));
  const step = find(groupOf(page.models[0]).steps);
  return step.error ? [] : step.curves.map((curve, n) => part(step, n, n ? curve.label : "as published", n));
}

function part(step, n, label, slot) {
  const of = (all) => all[n] ?? [];
  return { label, slot, step, curve: step.curves[n], heat: step.heat[n], likeness: of(step.likeness), envelope: of(step.envelopes), distances: step.distances };
}

function redraw() {
  const step = page.difference ? null : find(groupOf(page.models[0]).steps), parts = collect();
  tell("#fault", step?.error ? `${page.titles[view.method]}: ${step.error}` : null);
  const message = step?.error ? "Nothing to draw; the reason is above." : null;
  const x = parts.length ? longest(parts.map((one) => one.curve.wavelengths)).map((_, n) => n) : [];
  const rules = [];
  const rule = (y, name) => y && !rules.some((one) => one.y === y) && rules.push({ y, label: `${name} ${words(y)}` });
  for (const one of parts) {
    for (const [key, name] of [["trained", "trained on"], ["length", "length"]]) {
      const alone = new Set(parts.map((each) => each.step[key])).size > 1;
      rule(one.step[key], alone ? `${name}, ${one.label}` : name);
    }
  }
  const told = (curve, n) => [curve.statuses[n], curve.factors[n] && curve.factors[n] !== 1 ? `divided by ${words(curve.factors[n])}` : null, curve.new[n] ? "out-of-distribution angles" : null].filter(Boolean).join(", ");
  drawn.wavelengths.draw({
    message, rules,
    series: parts.map(({ label, slot, curve }) => ({
      label, slot, x, y: x.map((n) => curve.wavelengths[n] ?? null), marks: x.map((n) => curve.statuses[n] ?? "kept"),
      rings: curve.new, words: x.map((n) => told(curve, n)),
    })),
  });
  const at = parts.length ? longest(parts.map((one) => one.distances)) : [];
  const along = (values) => parts.map((one, n) => ({ label: one.label, slot: one.slot, dash: n === 0 && parts.length > 1, x: at, y: spread(one.distances, values(one), at) }));
  const missing = message ?? (at.length ? null : "No chart: these positions are coordinates in an image.");
  drawn.likeness.draw({ message: missing, series: missing ? [] : along((one) => one.likeness) });
  drawn.decay.draw({ message: missing, series: missing ? [] : along((one) => one.envelope.map((v) => v / one.envelope[0])) });
  heat.draw(parts.map((one) => ({ label: one.label, ...one.heat })));
  $("#live").textContent = parts.map((one) => summary(one)).join(" ");
  if (!page.difference) written(step);
  diagnosed(step);
}

const longest = (lists) => lists.reduce((a, b) => ((a.at(-1) ?? 0) > (b.at(-1) ?? 0) || a.length > b.length ? a : b));

/** Values at other distances: those of the nearest smaller one, none past the last. */
function spread(distances, values, at) {
  if (distances === at) return values;
  let n = 0;
  return at.map((x) => {
    while (n + 1 < distances.length && distances[n + 1] <= x) n += 1;
    return x > distances.at(-1) ? null : values[n];
  });
}

function summary({ label, curve, step }) {
  const fresh = curve.new.filter(Boolean).length;
  const reach = curve.reach == null ? "" : `, effective context ${words(curve.reach)} tokens`;
  const known = curve.new.length ? (fresh ? `${fresh} pairs have out-of-distribution angles` : "no pair has an out-of-distribution angle") : "out-of-distribution angles are not known";
  return `${label}, at ${words(step.length)} tokens: ${known}${reach}, attention scale ${words(curve.attention_scale)}.`;
}

function written(step) {
  const offered = Object.entries(step.configs ?? {}), said = el("p", { class: "quiet", role: "status" });
  const block = ([name, text]) => [
    el("h3", {}, `config.json for ${name}${name === step.dialect ? " (as the original)" : ""} `,
      el("button", { type: "button", class: "small", onclick: () => copy(text, "Config", (words) => { said.textContent = words; }) }, "copy"), " ",
      el("button", { type: "button", class: "small", onclick: () => save("config.json", new Blob([text], { type: "application/json" })) }, "save")),
    el("pre", { tabindex: 0, "aria-label": `config.json for ${name}` }, text)];
  $("#configs").replaceChildren(
    ...(step.warnings ?? []).map((text) => el("p", { class: "error" }, `Warning: ${text}`)),
    ...offered.map((one, n) => el("details", n ? {} : { open: true }, el("summary", {}, one[0]), ...block(one))),
    ...(offered.length ? [] : [el("p", {}, `No config to copy${step.why_no_config ? `: ${step.why_no_config}` : "."}`)]), said);
}

function diagnosed(step) {
  $("#diagnosis-title").textContent = view.method === "config" ? "Diagnosis, as published" : "Diagnosis, as extended";
  const found = step ? [[null, step.findings ?? []]] : page.models.map((model) => [model.name, model.findings]);
  const item = (one) => el("li", { class: one.severity }, el("p", {}, el("b", {}, one.severity), " ", el("code", {}, one.rule), one.where ? ` at ${one.where}` : ""), el("p", {}, one.message), el("p", { class: "quiet" }, one.remedy));
  $("#findings").replaceChildren(...found.flatMap(([name, list]) => [
    name ? el("h3", {}, name) : null,
    list.length ? el("ul", { class: "findings" }, ...list.map(item)) : el("p", { class: "quiet" }, "Nothing found."),
  ]).filter(Boolean));
}

function facts() {
  const rows = (list) => list.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  $("#facts").replaceChildren(...page.models.flatMap((model) => [
    page.difference ? el("h3", {}, model.name) : null,
    page.difference ? el("p", {}, model.verdict) : null,
    ...model.facts.map((group, n) => el("details", n || page.difference ? {} : { open: true }, el("summary", {}, group.title), el("dl", {}, ...rows(group.facts)))),
    ...model.notes.map((note) => el("p", { class: "quiet" }, note)),
  ]).filter(Boolean));
}

function difference() {
  const heads = page.models.map((model) => el("th", { scope: "col" }, model.name));
  const bodies = [...new Set(page.difference.facts.map((one) => one.part))].map((part) => el("tbody", {},
    ...page.difference.facts.filter((one) => one.part === part).map((one) => el("tr", { class: one.differs ? "differs" : "" },
      el("th", { scope: "row" }, one.name, one.differs ? el("span", { class: "away" }, " (differs)") : null), el("td", {}, one.first), el("td", {}, one.second)))));
  $("#difference-table").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), ...heads)), ...bodies));
}

/** The controls; a method has the factors that were computed for it. */
function controls() {
  const steps = groupOf(page.models[0]).steps, known = Object.keys(page.titles).filter((name) => steps.some((one) => one.method === name));
  if (!known.includes(view.method)) view.method = "config";
  $("#method").replaceChildren(...known.map((name) => el("option", { value: name, selected: name === view.method }, page.titles[name])));
  const offered = factors();
  if (view.method !== "config" && !offered.includes(view.factor)) [view.factor] = offered;
  $("#factor-row").hidden = view.method === "config";
  $("#factor").max = offered.length - 1;
  $("#factor").value = Math.max(0, offered.indexOf(view.factor));
  $("#factor-value").textContent = `x ${words(view.factor)}`;
  $("#factor").setAttribute("aria-valuetext", `${view.factor}`);
}

function begin() {
  const [model] = page.models;
  $("#title").textContent = page.models.map((one) => one.name).join(" and ");
  $("#verdict").textContent = page.difference ? page.difference.verdict : model.verdict;
  $("#version").textContent = page.version;
  for (const id of ["#choose", "#write"]) $(id).hidden = page.difference != null;
  $("#difference").hidden = page.difference == null;
  if (page.difference) difference();
  $("#group").replaceChildren(...model.groups.map((one) => el("option", { value: one.index, selected: one.index === view.group }, one.title)));
  $("#group-row").hidden = model.groups.length < 2;
  const yarn = groupOf(model).steps.find((one) => one.method === "yarn" && !one.error);
  if (yarn && !page.difference) Object.assign(view, { method: "yarn", factor: 4 });
  controls();
  const changed = () => { controls(); redraw(); };
  $("#group").addEventListener("change", (event) => { view.group = Number(event.target.value); changed(); });
  $("#method").addEventListener("change", (event) => { view.method = event.target.value; changed(); });
  $("#factor").addEventListener("input", (event) => { view.factor = factors()[Number(event.target.value)]; changed(); });
  facts();
  redraw();
  document.body.dataset.ready = "yes";
}

begin();
