// Every method of extension in one table, and what to write for the recommended one.

import { $, ask, brief, copy, el, later, latest, tell, words } from "./common.js";

const RUNS = { runs: "yes", unknown: "?" };
const KINDS = { yes: "yes", no: "no", "?": "partly" };

export class Extension {
  /** source: a function that gives the config, and the trained length if the user entered it. */
  constructor(node, source) {
    this.node = node;
    this.source = source;
    this.asked = null;
    this.load = latest(() => this.fetch());
    $("#extend-to").addEventListener("input", later(300, this.load));
  }

  /** Asks again if the config or the length has changed; hidden if nothing can be extended. */
  refresh(possible) {
    this.node.hidden = !possible;
    if (possible) this.load();
  }

  async fetch() {
    const asked = { ...this.source(), to: $("#extend-to").value.trim() };
    const key = JSON.stringify(asked);
    if (!asked.source || key === this.asked) return;
    this.asked = key;
    const result = $("#extend-result");
    try {
      const plan = await ask("extend", asked);
      tell("#extend-error", null);
      $("#extend-to").removeAttribute("aria-invalid");
      result.replaceChildren(...this.parts(plan));
    } catch (error) {
      tell("#extend-error", error.message);
      result.replaceChildren();
    }
  }

  parts(plan) {
    const say = el("p", { class: "quiet", role: "status" });
    return [
      ...plan.verdict.map((line) => el("p", {}, line)),
      el("p", { class: "quiet" }, plan.trained.why),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Methods of extension" }, this.table(plan)),
      el("p", { class: "quiet" }, plan.legend),
      el("p", { class: "quiet" }, `Order: ${plan.rule}. ${plan.reason}`),
      ...(plan.recipes.length ? [el("details", {}, el("summary", {}, `What to write for ${plan.chosen}`), ...plan.recipes.flatMap((one) => this.recipe(one, say)), say)] : []),
    ];
  }

  table(plan) {
    const names = plan.methods[0].support.map((one) => one.framework);
    const numbers = ["effective context", "pairs out", "change, rad", "attention scale"];
    const heads = [...numbers.map((name) => el("th", { scope: "col", class: "number" }, name)), ...names.map((name) => el("th", { scope: "col" }, name))];
    const cell = (text) => el("td", { class: "number" }, text);
    const runs = (one) => {
      const word = RUNS[one.outcome] ?? "no";
      return el("td", { title: one.why }, el("span", { class: KINDS[word] }, word));
    };
    return el("table", {}, el("caption", { class: "away" }, `Methods that extend to ${words(plan.target)} tokens, the recommended one first`),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "method"), ...heads)),
      el("tbody", {}, ...plan.methods.map((one) => el("tr", { class: one.name === plan.chosen ? "chosen" : null },
        el("th", { scope: "row", title: one.title }, one.name),
        cell(one.effective_context == null ? "unlimited" : words(one.effective_context)),
        cell(`${one.out_of_distribution}/${one.pairs}`),
        cell(brief(one.angle_change)),
        cell(one.attention_scale.toFixed(4)),
        ...one.support.map(runs)))));
  }

  recipe(one, say) {
    const what = one.form === "lines" ? "config.json" : "command";
    const copied = () => copy(one.text, `${one.framework}`, (text) => { say.textContent = text; });
    return [
      el("h3", {}, `${one.framework}, ${what} `, one.text == null ? null : el("button", { type: "button", class: "small", "aria-label": `Copy for ${one.framework}`, onclick: copied }, "copy")),
      one.text == null ? null : el("pre", { tabindex: 0, "aria-label": `For ${one.framework}` }, one.text),
      one.note == null ? null : el("p", { class: "quiet" }, one.note),
    ].filter(Boolean);
  }
}
