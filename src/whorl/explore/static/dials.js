// Pairs as dials: a query and a key move along the text, their hands rotate, and the angle between
// the two stays the same. Angles are position times frequency; the frequencies come from Python.

import { $, brief, el, shape, words } from "./common.js";

const CIRCLE = 2 * Math.PI, R = 40, MOST = 4096;

export class Dials {
  constructor(root) {
    this.root = root;
    this.position = 0;
    this.distance = 16;
    this.pairs = [];
    this.playing = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.row = $(".dials", root);
    this.play = $("#play");
    this.scrub = $("#position");
    this.speed = $("#speed");
    this.play.addEventListener("click", () => this.toggle());
    this.scrub.addEventListener("input", () => {
      this.position = Number(this.scrub.value);
      this.rotate();
    });
    this.visible = true;
    new IntersectionObserver(([entry]) => {
      this.visible = entry.isIntersecting;
      this.next();
    }).observe(root);
    this.label();
  }

  toggle() {
    this.playing = !this.playing;
    this.label();
    this.next();
  }

  label() {
    this.play.textContent = this.playing ? "Pause" : "Play";
  }

  /** frequencies: of all pairs. chosen: the pair that is selected in the charts. */
  show({ frequencies, wavelengths, chosen, distance, likeness, label }) {
    this.frequencies = frequencies;
    this.distance = distance;
    // Fast pairs, which the eye can follow, and fewer of the slow ones.
    const last = frequencies.length - 1;
    const spread = [0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1].map((share) => Math.round(share * last));
    const pairs = [...new Set(chosen == null ? spread : [...spread, chosen])].sort((a, b) => a - b);
    if (pairs.join() !== this.pairs.join()) {
      this.pairs = pairs;
      this.hands = pairs.map((pair) => this.dial(pair));
      this.row.replaceChildren(...this.hands.map((hand) => hand.box));
    }
    this.hands.forEach((hand, n) => {
      const wave = wavelengths[pairs[n]];
      hand.text.textContent = wave == null ? "does not rotate" : `wavelength ${brief(wave)}`;
      hand.box.classList.toggle("chosen", pairs[n] === chosen);
    });
    const alike = likeness.toFixed(3);
    $("#alike").textContent = `Two equal tokens ${words(distance)} apart, ${label}: mean cosine ${alike}, at every position.`;
    this.rotate();
    this.next();
  }

  dial(pair) {
    const wedge = shape("path", { class: "wedge" }), query = shape("path", { class: "query" });
    const key = shape("path", { class: "hand-key" });
    const text = el("small", {});
    const face = shape("svg", { viewBox: "-50 -50 100 100", role: "img", "aria-label": `Pair ${pair}` },
      shape("circle", { class: "face", r: R }), wedge, key, query);
    return { wedge, query, key, text, box: el("li", {}, face, el("span", {}, `pair ${pair}`), text) };
  }

  rotate() {
    const position = Math.floor(this.position);
    this.scrub.value = position;
    this.scrub.setAttribute("aria-valuetext", words(position));
    $("#where").textContent = `Key at position ${words(position)}, query at ${words(position + this.distance)}.`;
    this.hands?.forEach((hand, n) => {
      const f = this.frequencies[this.pairs[n]];
      // Between whole positions the hands move evenly, so that the eye can follow slow pairs.
      const a = -((this.position + this.distance) * f) % CIRCLE, b = -(this.position * f) % CIRCLE;
      hand.query.setAttribute("d", `M0 0L${R * Math.cos(a)} ${R * Math.sin(a)}`);
      hand.key.setAttribute("d", `M0 0L${R * 0.78 * Math.cos(b)} ${R * 0.78 * Math.sin(b)}`);
      hand.wedge.setAttribute("d", wedge(a, b, R * 0.5));
    });
  }

  next() {
    if (this.waiting || !this.playing || !this.visible || !this.frequencies) return;
    this.waiting = true;
    let before = performance.now();
    const step = (now) => {
      if (!this.playing || !this.visible) {
        this.waiting = false;
        return;
      }
      const rate = 2 ** Number(this.speed.value);
      this.position = (this.position + (Math.max(0, now - before) / 1000) * rate) % MOST;
      before = now;  // of the frame, which can lie before the call that asked for it
      this.rotate();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }
}

/** The smaller sector between two angles. */
function wedge(a, b, r) {
  let angle = (b - a) % CIRCLE;
  if (angle > Math.PI) angle -= CIRCLE;
  if (angle < -Math.PI) angle += CIRCLE;
  const start = `M0 0L${r * Math.cos(a)} ${r * Math.sin(a)}`;
  return `${start}A${r} ${r} 0 0 ${angle > 0 ? 1 : 0} ${r * Math.cos(a + angle)} ${r * Math.sin(a + angle)}Z`;
}
