// The page in one file: charts of steps that were computed before, or of two models.

import { $, copy, el, save, tell, words } from "./common.js";
import { makePart } from "./views.js";
import { Overlay, showFindings, showLayers, showTwo } from "./sides.js";

const page = JSON.parse($("#data").textContent);
const overlay = new Overlay();
const [model] = page.models;
const view = { group: model.first, method: "config", factor: 4 };

const steps = () => (model.groups.find((one) => one.index === view.group) ?? model.groups[0]).steps;
const factors = () => steps().filter((one) => one.method === view.method).map((one) => one.factor);
const find = () => steps().find((one) => one.method === view.method && (one.method === "config" || one.factor === view.factor)) ?? steps()[0];

function redraw() {
  const step = find();
  tell("#fault", step.error ? `${page.titles[view.method]}: ${step.error}` : null);
  const parts = step.error ? [] : step.curves.map((curve, n) => makePart(step, n, n ? curve.label : "as published", n));
  overlay.draw(parts, step.error ? "Nothing to draw; the reason is above." : null);
  written(step);
  $("#diagnosis-title").textContent = view.method === "config" ? "Diagnosis, as published" : "Diagnosis, as extended";
  showFindings([[null, step.findings ?? []]]);
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

/** The controls; a method has the factors that were computed for it. */
function controls() {
  const known = Object.keys(page.titles).filter((name) => steps().some((one) => one.method === name));
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

/** One model: its steps, from YaRN by 4 if it has that. */
function showSteps() {
  $("#verdict").textContent = model.verdict;
  $("#group").replaceChildren(...model.groups.map((one) => el("option", { value: one.index, selected: one.index === view.group }, one.title)));
  $("#group-row").hidden = model.groups.length < 2;
  if (steps().some((one) => one.method === "yarn" && !one.error)) view.method = "yarn";
  const changed = () => { controls(); redraw(); };
  $("#group").addEventListener("change", (event) => { view.group = Number(event.target.value); changed(); });
  $("#method").addEventListener("change", (event) => { view.method = event.target.value; changed(); });
  $("#factor").addEventListener("input", (event) => { view.factor = factors()[Number(event.target.value)]; changed(); });
  showLayers(page.models);
  changed();
}

function begin() {
  $("#title").textContent = page.models.map((one) => one.name).join(" and ");
  $("#version").textContent = page.version;
  for (const id of ["#choose", "#write"]) $(id).hidden = page.difference != null;
  $("#difference").hidden = page.difference == null;
  if (page.difference) showTwo(page, overlay);
  else showSteps();
  document.body.dataset.ready = "yes";
}

begin();
