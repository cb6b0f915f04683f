// The page of two models: presets, or configs of the command line.

import { $, ask, el, latest, tell } from "./common.js";
import { Overlay, showTwo } from "./sides.js";

const overlay = new Overlay();

/** A config as a value of a list, and back. */
const valueOf = (source) => source.preset ?? `:${Object.keys(source)[0]}`;
const sourceOf = (value) => (value.startsWith(":") ? { [value.slice(1)]: true } : { preset: value });

const look = latest(async () => {
  try {
    const found = await ask("models", { first: sourceOf($("#first").value), second: sourceOf($("#second").value) });
    $("#results").hidden = false;
    tell("#error", null);
    showTwo(found, overlay);
  } catch (error) {
    tell("#error", error.message);
    $("#verdict").textContent = "";
    $("#results").hidden = true;
  }
});

async function begin() {
  let start;
  try {
    start = await ask("start");
  } catch (error) {
    return tell("#error", error.message);
  }
  $("#version").textContent = start.version;
  const options = [[":given", start.given], [":other", start.other], ...start.presets.map((name) => [name, name])].filter(([, name]) => name);
  for (const [id, source] of [["#first", start.first], ["#second", start.second]]) {
    $(id).append(...options.map(([value, name]) => el("option", { value }, name)));
    $(id).value = valueOf(source);
    $(id).addEventListener("change", look);
  }
  await look();
  document.body.dataset.ready = "yes";
}

begin();
