// A view as the fragment of a link, which the browser does not send, and back.

import { limits, wrong } from "./limits.js";

const MOST = 20000;
const NUMBERS = ["group", "length", "base", "trained", "pair", "distance", "factor"];
const KEYS = ["check", "preset", "config", "method", "keep", ...NUMBERS];

const encode = (text) => btoa(Array.from(new TextEncoder().encode(text), (code) => String.fromCharCode(code)).join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) => new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));

const one = ({ method, factor, base }) => [method, factor ?? "", base ?? ""].join("~");

/** A checksum (FNV-1a), to detect a link that is incomplete. */
function check(text) {
  let sum = 0x811c9dc5;
  for (const letter of text) sum = Math.imul(sum ^ letter.codePointAt(0), 0x01000193) >>> 0;
  return sum.toString(36);
}

/** The fragment; null for a config that does not fit into a link. */
export function write(state) {
  const found = new URLSearchParams();
  if (state.source?.preset) found.set("preset", state.source.preset);
  else if (state.source?.text) {
    let text = state.source.text;
    try {
      text = JSON.stringify(JSON.parse(text));
    } catch {
      // Text that is not JSON is stored unchanged.
    }
    if (text.length > MOST) return null;
    found.set("config", encode(text));
  } else if (!state.source?.given) return null;
  for (const key of NUMBERS) if (key !== "factor" && state[key] != null) found.set(key, state[key]);
  if (state.method !== "config") found.set("method", state.method);
  if (!["config", "none"].includes(state.method)) found.set("factor", state.factor);
  if (state.pins.length) found.set("keep", state.pins.map(one).join(","));
  return `#check=${check(String(found))}&${found}`;
}

/** The view of a fragment; invalid parts are ignored and listed in problems. */
export function read(hash, start) {
  const found = new URLSearchParams(hash.slice(1)), view = {}, problems = [];
  const allowed = limits(start, found.get("method"));
  const claimed = found.get("check");
  found.delete("check");
  if (claimed != null && claimed !== check(String(found))) problems.push("It is incomplete or was changed.");
  for (const key of new Set(found.keys()))
    if (!KEYS.includes(key)) problems.push(`There is no "${key.slice(0, 40)}".`);
  for (const key of NUMBERS) {
    if (!found.has(key)) continue;
    const problem = wrong(allowed[key], found.get(key));
    if (problem) problems.push(problem);
    else view[key] = Number(found.get(key));
  }
  const method = found.get("method");
  if (method != null && Object.hasOwn(start.methods, method)) view.method = method;
  else if (method != null) problems.push(`There is no method "${method.slice(0, 40)}".`);
  view.pins = kept(found.get("keep"), start, problems);
  return { source: source(found, start, problems), view, problems };
}

function kept(text, start, problems) {
  const pins = [];
  for (const each of text ? text.split(",") : []) {
    const [method, factor = "", base = ""] = each.split("~"), plain = ["config", "none"].includes(method);
    const allowed = limits(start, method);
    const sense = Object.hasOwn(start.methods, method) && !(method === "config" && !base)
      && (plain || !wrong(allowed.factor, factor)) && (base === "" || !wrong(allowed.base, base));
    if (!sense) problems.push(`"${each.slice(0, 40)}" is not a curve that can be kept.`);
    else if (pins.length >= start.most_curves - 2) problems.push(`More than ${start.most_curves - 2} curves were kept; the rest is left out.`);
    else pins.push({ method, factor: plain ? null : Number(factor), base: base === "" ? null : Number(base) });
  }
  return pins;
}

function source(found, start, problems) {
  const preset = found.get("preset"), config = found.get("config");
  if (preset != null && start.presets.includes(preset)) return { preset };
  if (preset != null) problems.push(`There is no preset "${preset.slice(0, 60)}".`);
  if (config == null) return null;
  try {
    return { text: decode(config) };
  } catch {
    problems.push("The config in it is damaged.");
    return null;
  }
}
