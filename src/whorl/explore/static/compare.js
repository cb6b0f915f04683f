// The page of encodings: biases by distance, the report card, results of the lab.

import { $, ask, el, latest, tell, words } from "./common.js";
import { Chart } from "./charts.js";

const chart = new Chart($("#bias"), {
  id: "bias", title: "Bias added to the scores", x: { label: "distance to the key, in tokens", name: "distance" },
  y: { label: "bias, in logits" },
});
let start, found = null;

const fail = (text) => tell("#error", text);

const chosen = () => [...document.querySelectorAll("#encodings input:checked")].map((box) => box.value);

const look = latest(async () => {
  const length = Math.round(2 ** Number($("#length").value));
  $("#length-shown").value = words(length);
  if (!chosen().length) {
    found = null;
    return chart.draw({ message: "No encoding is chosen; tick one above." });
  }
  if (!found) chart.draw({ message: "Computing; the first time takes some seconds." });
  try {
    found = await ask("bias", { encodings: chosen(), length });
    fail(null);
    draw();
  } catch (error) {
    fail(error.message);
    chart.draw({ message: "Nothing to draw; the reason is above." });
  }
});

function draw() {
  const head = Number($("#head").value);
  $("#head-shown").value = String(head);
  if (!found) return;
  const slots = start.with_bias;
  chart.draw({
    series: found.curves.map((one) => ({
      label: one.name, slot: 1 + slots.indexOf(one.name), x: one.distances,
      y: one.heads[Math.min(head, one.heads.length - 1)],
    })),
    note: note(head),
  });
}

function note(head) {
  const trained = found.curves.filter((one) => one.trained).map((one) => one.name);
  return `Head ${head} of 8, query after key.${trained.length ? ` ${trained.join(", ")} have trained biases: shown with their initial values.` : ""}`;
}

const KINDS = { yes: "yes", no: "no", untouched: "", trained: "partly", partly: "partly" };

async function cards() {
  const table = $("#card"), body = el("tbody");
  let keys = null, said = null;
  for (const [n, name] of start.encodings.entries()) {
    $("#card-state").textContent = `Measuring ${name}, ${n + 1} of ${start.encodings.length}.`;
    let row;
    try {
      row = await ask("card", { encoding: name });
    } catch (error) {
      body.append(el("tr", {}, el("th", { scope: "row" }, name), el("td", { colspan: 8 }, error.message)));
      continue;
    }
    said ??= row;
    if (!keys) {
      keys = Object.keys(row.verdicts);
      table.append(el("caption", { class: "away" }, "Report card of every encoding"),
        el("thead", {}, el("tr", {}, ...["encoding", ...keys, "trained numbers"].map((key) => el("th", { scope: "col" }, key)))), body);
    }
    body.append(el("tr", {}, el("th", { scope: "row" }, name), ...keys.map((key) => {
      const verdict = row.verdicts[key], why = row.evidence[key];
      return el("td", {}, el("span", { class: KINDS[verdict] ?? "partly" }, verdict), why === verdict ? null : el("small", {}, why));
    }), el("td", { class: "number" }, words(row.parameters))));
  }
  $("#card-state").textContent = `${start.encodings.length} encodings measured.`;
  if (said) $("#card-rules").append(el("summary", {}, "The rules for yes, and explanations"),
    el("dl", {}, ...Object.entries(said.rules).flatMap(([key, rule]) => [el("dt", {}, key), el("dd", {}, rule)])),
    ...said.words.map((line) => el("p", { class: "quiet" }, line)));
  $("#card-rules").hidden = !said;
}

async function lab() {
  const results = await ask("lab", {});
  if (!results.rows.length) {
    $("#lab-note").textContent = `Nothing to show: ${results.why ?? "no run is finished."}`;
    return;
  }
  const { lengths, rows } = results;
  const what = results.measure === "loss" ? `loss in nats per ${results.unit.replace(/s$/, "")}, lower is better` : "accuracy";
  $("#lab-note").textContent = `${what[0].toUpperCase()}${what.slice(1)}, by length of texts; trained at ${words(results.trained)}. ${results.notes.join(" ")}`;
  $("#lab").hidden = false;
  new Chart($("#lab"), {
    id: "lab", title: "Results by length", x: { label: `length, in ${results.unit}`, name: "length", log: true, each: true }, y: { label: what.split(",")[0] },
  }).draw({
    series: rows.slice(0, 11).map((row, n) => ({ label: row.name, slot: n, dash: n >= 7, x: lengths, y: lengths.map((length) => row.by_length[length]) })),
    note: rows.length > 11 ? `The first 11 of ${rows.length}; all are in the table.` : "",
  });
  $("#claims").append(...results.claims.flatMap((one) => [el("dt", {}, one.outcome), el("dd", {}, `${one.claim} `, el("small", {}, one.evidence))]));
  const number = (value) => (value == null ? "\u2013" : value.toFixed(results.measure === "loss" ? 3 : 2));
  $("#lab-table").append(el("caption", { class: "away" }, "Results by length"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "encoding"),
      ...lengths.map((length) => el("th", { scope: "col", class: "number" }, words(length) + (length === results.trained ? " (trained)" : ""))), el("th", { scope: "col", class: "number" }, "tokens/s"))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, el("th", { scope: "row" }, row.name),
      ...lengths.map((length) => el("td", { class: "number" }, number(row.by_length[length]))),
      el("td", { class: "number" }, row.tokens_per_second == null ? "\u2013" : words(Math.round(row.tokens_per_second)))))));
}

async function begin() {
  try {
    start = await ask("start");
  } catch (error) {
    return fail(error.message);
  }
  $("#version").textContent = start.version;
  $("#without").textContent = `These have no bias by distance, and act on embeddings, queries and keys or scores instead: ${start.without_bias.join(", ")}.`;
  $("#encodings").append(...start.with_bias.map((name, n) => el("label", {},
    el("input", { type: "checkbox", value: name, checked: n < 3, onchange: look }), name)));
  $("#length").addEventListener("input", look);
  $("#head").addEventListener("input", draw);
  await Promise.all([look(), lab(), cards()]).catch((error) => fail(error.message));
  document.body.dataset.ready = "yes";
}

begin();
