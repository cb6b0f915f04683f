// Shared by all pages: elements, requests, formatted numbers, files to save.

export const $ = (selector, root = document) => root.querySelector(selector);

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** An HTML element; texts are texts, never markup. */
export const el = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

/** An SVG element. */
export const shape = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

/** Shows a message in an element; without text the element is hidden. */
export function tell(where, text) {
  $(where).hidden = !text;
  $(where).textContent = text ?? "";
}

/** Sends a request to Python; throws its error message. fault: whether whorl failed, not the input. */
export async function ask(name, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  const fail = (text, fault) => Object.assign(new Error(text), { fault });
  let answer, found = {};
  try {
    answer = await fetch(`/api/${name}`, options);
  } catch {
    throw fail("whorl explore does not answer; is the command still running?", true);
  }
  try {
    found = await answer.json();
  } catch {
    throw fail(`whorl explore failed (${answer.status}), and the terminal shows why. Please report that with the config.`, true);
  }
  if (found.error != null) throw fail(found.error, answer.status >= 500);
  return found;
}

/** A number for people: 131,072; 6.283; 20.5M. */
export function words(value) {
  if (value == null || !Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  if (size >= 1e7) return brief(value);
  if (Number.isInteger(value) || size >= 1e4) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

/** Three digits, with k, M and G. */
export function brief(value) {
  if (Math.abs(value) >= 1e13) return Number(value.toPrecision(3)).toExponential().replace("+", "");
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (Math.abs(value) >= size * 0.9995) return Number((value / size).toPrecision(3)) + unit;
  return String(Number(value.toPrecision(3)));
}

export function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Copies text to the clipboard, and reports success or failure. */
export async function copy(text, what, say) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    say(`The browser does not allow the page to copy; select the text and copy it yourself.`);
  }
}

/** A text in lines of at most so many letters. */
export function lines(text, most) {
  const found = [];
  for (const word of text.split(" ")) {
    if (found.length && `${found.at(-1)} ${word}`.length <= most) found.push(`${found.pop()} ${word}`);
    else found.push(word);
  }
  return found;
}

/** Calls once, after ``wait`` milliseconds without another call. */
export function later(wait, call) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, wait);
  };
}

/** Runs while values change: one request at a time, always for the newest values. */
export function latest(run) {
  let busy = false, again = false;
  return async function go() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      do {
        again = false;
        await run();
      } while (again);
    } finally {
      busy = false;
    }
  };
}
