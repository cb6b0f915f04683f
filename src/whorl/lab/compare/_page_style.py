"""Style and script of the report page, with the background colors of the charts."""

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1a1d21; --quiet: #50565e;
  --line: #e3e6ea; --wash: #f6f7f9; --link: #0b66a0; --heat: 213 94 0;
  --good: #007a58; --bad: #b34700; --open: #6b5300; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground: #15181c; --ink: #eceef1; --quiet: #b4bac2; --line: #2c3138; --wash: #1c2026;
    --link: #7cc4f0; --heat: 230 120 40; --good: #4cc9a2; --bad: #f0925a; --open: #e0c060; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 73rem; margin: 0 auto; padding: 3.5rem 1.5rem 5rem; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; letter-spacing: -.01em; margin: 3.2rem 0 .8rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .6rem; }
p, ul.plain { max-width: 44rem; margin: .6rem 0; }
p, li, dd, td { overflow-wrap: anywhere; }
.quiet, footer { color: var(--quiet); font-size: .9rem; }
.lead { font-size: 1.1rem; margin: 1.6rem 0 0; }
a { color: var(--link); text-underline-offset: .15em; }
code, pre { font: .9em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
  padding: .8rem 1rem; overflow-x: auto; max-width: 44rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums;
  min-width: 100%; }
th, td { padding: .38rem .43rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; border-bottom: 1px solid var(--quiet); font-weight: 500;
  white-space: normal; line-height: 1.25; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--ground);
  padding-left: 0; }
tbody th { font-weight: 500; }
td.heat { background: rgb(var(--heat) / calc(var(--t) * .34)); }
td small { color: var(--quiet); display: block; line-height: 1.1; }
td b { font-weight: 700; }
.trained { border-inline: 1px dashed var(--quiet); }
th button { all: unset; cursor: pointer; color: var(--quiet); }
th button:hover, th[aria-sort] button { color: var(--ink); }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
th button:hover { text-decoration: underline; text-underline-offset: .2em; }
th[aria-sort=ascending] button::after { content: "\\a0\\2191"; }
th[aria-sort=descending] button::after { content: "\\a0\\2193"; }
figure { margin: 1.5rem 0; overflow-x: auto; }
figure svg { display: block; max-width: 100%; height: auto; min-width: 35rem; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr));
  gap: 0 1.5rem; margin-top: 2rem; }
.pair figure { margin: .75rem 0; } .pair svg { min-width: 0; }
.dark, .narrow { display: none; }
@media screen and (prefers-color-scheme: dark) {
  .light { display: none; } .dark { display: block; } }
.claims { list-style: none; padding: 0; margin: 0; }
.claims li { display: grid; grid-template-columns: 11rem 1fr; gap: 0 1.2rem; padding: .8rem 0;
  border-top: 1px solid var(--line); max-width: 54rem; }
.claims p { margin: 0; max-width: none; }
.outcome { font-weight: 600; }
.reproduced { color: var(--good); } .not-reproduced { color: var(--bad); }
.not-decidable { color: var(--open); } .not-yet { color: var(--quiet); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .9rem 1.5rem;
  margin: 0; }
dt { color: var(--quiet); font-size: .85rem; } dd { margin: 0; }
details { border: solid var(--line); border-width: 1px 0; padding: .6rem 0; }
summary { cursor: pointer; font-weight: 500; }
footer { margin-top: 3.5rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media (max-width: 40rem) {
  main { padding: 2rem 1rem 3rem; } h1 { font-size: 1.55rem; } .lead { font-size: 1rem; }
  tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 9.2rem; }
  .claims li { grid-template-columns: 1fr; }
  .wide { display: none; } .narrow { display: block; } .narrow svg { min-width: 0; } }
@media print {
  body { font-size: 10pt; } main { max-width: none; padding: 0; } h2 { break-after: avoid; }
  .scroll, figure { overflow: visible; margin: 0; padding: 0; }
  figure, tr, .claims li { break-inside: avoid; } figure svg { min-width: 0; }
  table { font-size: 7.5pt; } th, td { padding: .2rem .3rem; }
  th button::after { content: none; } td.heat { print-color-adjust: exact; } }
"""

# A click sorts by the column, a second one reverses the order; cells without a value stay last.
SCRIPT = """
document.querySelectorAll("th button").forEach((button) => button.addEventListener("click", () => {
  const head = button.parentElement, body = head.closest("table").tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  const key = (row) => row.cells[head.cellIndex].dataset.v ?? "";
  const compare = (a, b) => a === "" || b === "" ? (a === "") - (b === "")
    : (up ? 1 : -1) * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
  head.parentElement.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
}));
"""
