// A view as the fragment of a link, which the browser keeps to itself, and back.

const MOST = 20000;

const encode = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decode = (text) => new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));

const one = ({ method, factor, base }) => [method, factor ?? "", base ?? ""].join("~");

/** The fragment; null for a config that does not fit into a link. */
export function write(state) {
  const found = new URLSearchParams();
  if (state.source?.preset) found.set("preset", state.source.preset);
  else if (state.source?.text) {
    let text = state.source.text;
    try {
      text = JSON.stringify(JSON.parse(text));
    } catch {
      // Broken text travels as it is.
    }
    if (text.length > MOST) return null;
    found.set("config", encode(text));
  } else if (!state.source?.given) return null;
  for (const key of ["group", "length", "base", "trained", "pair", "distance"])
    if (state[key] != null) found.set(key, state[key]);
  if (state.method !== "config") found.set("method", state.method);
  if (!["config", "none"].includes(state.method)) found.set("factor", state.factor);
  if (state.pins.length) found.set("keep", state.pins.map(one).join(","));
  return `#${found}`;
}

/** What a fragment says; whatever makes no sense in it is left out. */
export function read(hash, start) {
  const found = new URLSearchParams(hash.slice(1)), view = {};
  const value = (text) => (text === "" || text == null || !Number.isFinite(Number(text)) ? null : Number(text));
  for (const key of ["group", "length", "base", "trained", "pair", "distance", "factor"]) {
    const number = value(found.get(key));
    if (number != null && number >= 0) view[key] = number;
  }
  if (Object.hasOwn(start.methods, found.get("method"))) view.method = found.get("method");
  const kept = (found.get("keep") ?? "").split(",").map((text) => text.split("~"));
  view.pins = kept.filter(([method]) => Object.hasOwn(start.methods, method)).slice(0, start.most_curves - 2)
    .map(([method, factor, base]) => ({ method, factor: value(factor), base: value(base) }));
  let source = null;
  if (found.get("preset")) source = { preset: found.get("preset") };
  else if (found.get("config")) {
    try {
      source = { text: decode(found.get("config")) };
    } catch {
      source = { text: "(the link is damaged)" };
    }
  }
  return { source, view };
}
