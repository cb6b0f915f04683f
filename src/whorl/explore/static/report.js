// The blocks of the first page that say what inspect and doctor found.

import { $, el } from "./common.js";
import { listFacts, showFinding } from "./views.js";

/** known: the report of Python; failed: whether whorl failed instead. */
export function showReport(known, failed) {
  const unread = failed ? "Not known, because whorl failed; see above." : "This cannot be read; the reason is beside the config.";
  $("#verdict").textContent = known.verdict ?? unread;
  $("#facts").replaceChildren(
    ...known.groups.map((group) => fold(`${group.title}, ${known.seen}`, group.facts)),
    ...[...new Set(known.frameworks.map((one) => one.config))].map((of) => fold(`How others read it, ${of}`, known.frameworks.filter((one) => one.config === of).map(describeReading))),
    ...known.notes.map((note) => el("p", { class: "quiet" }, note)));
  const counts = Object.entries(known.counts).filter(([, n]) => n).map(([name, n]) => `${n} ${name}${n > 1 ? "s" : ""}`);
  const clean = Object.keys(known.counts).length ? "Nothing found." : failed ? "Not examined." : "Not examined, because it cannot be read.";
  $("#doctor-of").textContent = known.findings_of ? `, ${known.findings_of}` : "";
  $("#counts").textContent = counts.length ? `${counts.join(", ")}.` : clean;
  $("#findings").replaceChildren(...known.findings.map(showFinding));
}

const fold = (title, rows) => el("details", {}, el("summary", {}, title), el("dl", {}, ...listFacts(rows)));

/** A framework, and how it reads the config. */
const describeReading = (one) => [
  one.framework, [one.outcome + (one.differs.length ? ` (${one.differs.join(", ")})` : ""), ...one.remarks].join(". ")];
