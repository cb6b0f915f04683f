// Models as published, drawn over each other: the page in one file, and the live page of two models.

import { $, el, words } from "./common.js";
import { countNewAngles, envelopeOf, listByDistance, listFacts, listRules, listWavelengths, makeChart, makeHeatMap, makePart, showFinding } from "./views.js";

const NO_ROTATION = "No chart: neither model rotates its queries and keys.";
const NO_DISTANCE = "No chart: these positions are coordinates in an image.";

/** The four charts of a page without sliders. */
export class Overlay {
  constructor() {
    this.charts = { wavelengths: makeChart("wavelengths"), likeness: makeChart("likeness"), decay: makeChart("decay") };
    this.heat = makeHeatMap();
  }

  /** parts: as of makePart; message: text to show instead. */
  draw(parts, message = null) {
    const { wavelengths, likeness, decay } = this.charts;
    const lengths = [["trained", "trained on"], ["length", "length"]].flatMap(([key, name]) => {
      const apart = new Set(parts.map((one) => one.view[key])).size > 1;
      return parts.map((one) => [one.view[key], apart ? `${name}, ${one.label}` : name]);
    });
    wavelengths.draw({ message, rules: listRules(lengths), series: listWavelengths(parts) });
    const none = message ?? (parts.some((one) => one.distances.length) ? null : NO_DISTANCE);
    likeness.draw({ message: none, series: listByDistance(parts, (one) => one.likeness) });
    decay.draw({ message: none, series: listByDistance(parts, envelopeOf) });
    this.heat.draw(parts, none);
    $("#live").textContent = parts.map(summarize).join(" ");
  }
}

function summarize({ label, curve, view }) {
  const reach = curve.reach == null ? "" : `, effective context ${words(curve.reach)} tokens`;
  return `${label}, at ${words(view.length)} tokens: ${countNewAngles(curve)}${reach}, attention scale ${words(curve.attention_scale)}.`;
}

/** Findings of each of [[name, findings]], under its name if there is one. */
export function showFindings(found) {
  $("#findings").replaceChildren(...found.flatMap(([name, list]) => [
    name ? el("h3", {}, name) : null,
    list.length ? el("ul", {}, ...list.map(showFinding)) : el("p", { class: "quiet" }, "Nothing found."),
  ]).filter(Boolean));
}

/** The layers of each model; two have their names and verdicts above, and are folded. */
export function showLayers(models) {
  const two = models.length > 1;
  $("#facts").replaceChildren(...models.flatMap((model) => [
    two ? el("h3", {}, model.name) : null,
    two ? el("p", {}, model.verdict) : null,
    ...model.facts.map((group, n) => el("details", n || two ? {} : { open: true }, el("summary", {}, group.title), el("dl", {}, ...listFacts(group.facts)))),
    ...model.notes.map((note) => el("p", { class: "quiet" }, note)),
  ]).filter(Boolean));
}

/** Two models: a document of Python with a difference, on a page with elements for all of its parts. */
export function showTwo({ models, difference }, overlay) {
  $("#verdict").textContent = difference.verdict;
  $("#difference-table").replaceChildren(compareFacts(models, difference.facts));
  const parts = models.flatMap(({ name, first, groups }, n) => groups.filter((one) => one.index === first).map((one) => makePart(one.steps[0], 0, name, n + 1)));
  overlay.draw(parts, parts.length ? null : NO_ROTATION);
  showFindings(models.map((model) => [model.name, model.findings]));
  showLayers(models);
}

function compareFacts(models, facts) {
  const heads = models.map((model) => el("th", { scope: "col" }, model.name));
  const row = (one) => el("tr", { class: one.differs ? "differs" : "" },
    el("th", { scope: "row" }, one.name, one.differs ? el("span", { class: "away" }, " (differs)") : null), el("td", {}, one.first), el("td", {}, one.second));
  const bodies = [...new Set(facts.map((one) => one.part))].map((part) => el("tbody", {}, ...facts.filter((one) => one.part === part).map(row)));
  return el("table", {}, el("thead", {}, el("tr", {}, el("td", {}), ...heads)), ...bodies);
}
