// Number fields. An invalid number is reported beside its field, and the results, which are still for
// the last valid number, are marked as stale.

import { $, ask, tell } from "./common.js";
import { wrong } from "./limits.js";

/** Fields of lengths, where 128k and 1e5 may be typed; Python reads them. */
const LENGTHS = ["length", "trained", "distance"];

export class Fields {
  /** limits: by key, as in limits.js. take(key, value): called with a valid number. */
  constructor(limits, take) {
    Object.assign(this, { limits, take, invalid: new Set(), refused: null });
  }

  /** empty: the value of an empty field, if it may be empty. */
  listen(key, empty) {
    const box = this.box(key);
    box.setAttribute("aria-errormessage", `${key}-error`);
    box.addEventListener("change", async () => {
      const typed = box.value, blank = typed === "" && !box.validity.badInput;
      let problem = null, text = typed;
      if (LENGTHS.includes(key) && /[a-z_,]/i.test(typed)) {
        try {
          text = String((await ask("length", { text: typed })).length);
        } catch (error) {
          problem = error.message;
        }
        if (box.value !== typed) return;  // something else was typed meanwhile
      }
      problem ??= blank && empty !== undefined ? null : wrong(this.limits[key], text);
      this.mark(key, problem);
      if (problem) return;
      if (!blank) box.value = text;
      this.take(key, blank ? empty : Number(text));
    });
  }

  box(key) {
    return $(`#${key}-number`) ?? $(`#${key}`);
  }

  /** Marks fields as valid, all of them by default. */
  settle(...keys) {
    for (const key of keys.length ? keys : [...this.invalid]) this.mark(key, null);
  }

  mark(key, problem) {
    if (problem) this.invalid.add(key);
    else this.invalid.delete(key);
    if (problem) this.box(key).setAttribute("aria-invalid", "true");
    else this.box(key).removeAttribute("aria-invalid");
    tell(`#${key}-error`, problem);
    this.stale();
  }

  /** Says that something else was refused, such as a config; null if nothing is. */
  refuse(words) {
    this.refused = words;
    this.stale();
  }

  stale() {
    const names = [...this.invalid].map((one) => this.limits[one].name);
    const typed = names.length ? `${names.join(" and ")} is not valid; the results are still for the last valid numbers.` : null;
    const said = [typed, this.refused].filter(Boolean).join(" ");
    $("#results").classList.toggle("stale", said !== "");
    tell("#stale", said || null);
  }

  /** Shows a value, unless the user is typing there or the field is invalid. */
  show(key, value) {
    if (document.activeElement !== this.box(key) && !this.invalid.has(key)) this.box(key).value = value;
  }
}
