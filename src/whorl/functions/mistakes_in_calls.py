"""Mistakes in what a function computes in and what it keeps: half types, caches, rows, inputs."""

import math
from typing import Any

import torch
from torch import Tensor

from .evidence import Evidence, Mistakes
from .report import Mistake
from .rounding import compute_tolerance

__all__ = ["RULES"]


#: What a position that is taken for a much smaller one was kept in.
_WRAPS = {256: "8-bit integers", 65_536: "16-bit integers"}


def detect_half_positions(e: Evidence) -> Mistakes:
    for kind, first in (("bfloat16", 257), ("float16", 2049)):
        hit = [d for d, wrong in e.calls.far.counted_in_halves.items() if wrong == first]
        if hit:
            yield Mistake(
                "bf16-positions" if kind == "bfloat16" else "fp16-positions",
                f"Wrong from position {first} on (inputs in {', '.join(hit)}), where {kind} cannot"
                f" count any more: positions are kept in {kind}. Form positions and angles in"
                " float32 or wider, whatever the dtype of the input.",
            )


def detect_dtype_differences(e: Evidence) -> Mistakes:
    """Dtypes that go wrong before the one that the function was measured in."""
    far, own = e.calls.far, e.seen.probe.form.dtype
    if e.seen.half_angles:  # in every dtype
        return
    limit = far.first_wrong.get(own, 2**30)
    early = {d: w for d, w in far.first_wrong.items() if d != own and w < limit}
    early = {d: w for d, w in early.items() if d not in far.counted_in_halves}
    creeping = [d for d, w in early.items() if w < 257 and far.excess[d] < 4 and d != "float32"]
    if creeping:
        yield Mistake(
            "half-angles",
            f"Inputs in {' and '.join(creeping)} give other angles, from position"
            f" {min(early[d] for d in creeping)} on and more with every further one: frequencies or"
            " angles are formed in the dtype of the input. Form them in float32 or wider.",
        )
    for dtype in [d for d in early if d not in creeping]:
        yield Mistake(
            "dtype-differs",
            f"Inputs in {dtype} give other results than those in {own}, from position"
            f" {early[dtype]} on and by up to {far.worst[dtype]:.2g}, which rounding does not"
            " explain. Is that dtype treated apart?",
        )


def detect_call_length(e: Evidence) -> Mistakes:
    if e.fails("length"):
        yield Mistake(
            "call-length",
            f"Positions 0 to 9 differ by up to {e.error('length'):.2g} between {e.calls.between},"
            " while the same call again gives the same: results depend on how long a call is, and"
            " on no earlier one. Frequencies may follow the context past the trained length (the"
            " largest position, not the tokens of a call: a decode step has one), and not from the"
            " first token on.",
        )


def detect_far_positions(e: Evidence) -> Mistakes:
    far, own = e.calls.far, e.seen.probe.form.dtype
    wrong = far.first_wrong.get(own)
    if wrong is None or own in far.counted_in_halves or e.fails("layout") or e.seen.half_angles:
        return
    if wrong < len(e.seen.maps) and not far.tokens:
        return  # the first positions themselves are no rotation, which other rules name
    if far.tokens:
        yield Mistake(
            "call-length",
            f"In a call of {far.tokens:,} tokens position {wrong:,} is wrong (by up to"
            f" {far.worst[e.seen.probe.form.dtype]:.2g}), in a short one it is right: results"
            " depend on how many tokens a call has.",
        )
        return
    if far.instead is None:
        why = "angles there do not continue those of the first positions. Does a table end?"
    else:
        kept = _WRAPS.get(wrong - far.instead)
        hint = f"positions are kept in {kept}" if kept else "a table ends, or the count is wrong"
        why = f"it gets the angles of position {far.instead:,}; {hint}."
    yield Mistake("far-positions", f"Wrong from position {wrong:,} on: {why}")


def detect_half_tables(e: Evidence) -> Mistakes:
    if (name := e.seen.half_tables) is not None:
        yield Mistake(
            "half-tables",
            f"cos and sin are {name} numbers although the input is {e.seen.probe.form.dtype}:"
            " tables were made or kept in half precision, as a buffer is when a model is cast. Keep"
            " them in float32, or derive them anew.",
        )


def detect_half_angles(e: Evidence) -> Mistakes:
    """Angles, or products on the way to them, that are rounded to a half type."""
    if not e.seen.half_angles or e.seen.turning is None or e.fails("layout"):
        return
    misfit = e.seen.turning.noise
    worst = e.calls.far.worst.get(e.seen.probe.form.dtype)
    known = worst is not None and e.calls.far.ruled
    shown = "" if not known else f", results by up to {worst:.2g} further out"
    yield Mistake(
        "half-angles",
        f"At positions 0 to 15 angles are up to {misfit:.2g} of themselves off positions times"
        f" frequencies{shown}, and every angle is a {e.seen.half_angles} number although the input"
        f" is {e.seen.probe.form.dtype}: angles are formed in {e.seen.half_angles}."
        " Form them in float32 or wider, whatever the dtype of the input.",
    )


def detect_half_frequencies(e: Evidence) -> Mistakes:
    """Rates that are rounded to a half type, of a rule that they would miss otherwise."""
    if e.seen.turning is None or e.seen.precision not in ("float64", "float32"):
        return
    rates = torch.tensor(e.found.inv_freq, dtype=torch.float64).abs()
    for name in ("bfloat16", "float16"):
        rounded = rates.to(getattr(torch, name)).double()
        near = (rounded - rates).abs() <= 4 * compute_tolerance(rates, e.seen.unit) * rates
        if bool(near.all()) and e.found.base is not None and e.found.error > 1e-4:
            yield Mistake(
                "half-frequencies",
                f"Frequencies are {name} numbers: they were made or kept in half precision, as a"
                " buffer is when a model is cast. At position 1,000 the angles are off by up to"
                f" {_compute_angle_error(e, rates):.2g} radians.",
            )
            return


def _compute_angle_error(e: Evidence, rates: Tensor) -> float:
    rope: Any = e.found.build()
    return float((rope.frequencies().inv_freq.abs() - rates).abs().max()) * 1000


def detect_ignored_offset(e: Evidence) -> Mistakes:
    if not e.fails("offset"):
        return
    if e.seen.probe.addressing == "none":
        yield Mistake(
            "offset-ignored",
            "Positions are ignored: every call turns by 0 .. T - 1. The first token of a decode"
            " step, of a packed document or of a left-padded row gets the wrong place.",
        )
    elif e.calls.stale:
        yield Mistake(
            "offset-ignored",
            "A cache ignores the offset: positions 7 to 19 after 0 to 12 gave the result of 0 to"
            " 12 again, while they come out right in a call of another length. The key of the"
            " cache must hold the positions, or the table be indexed by them.",
        )
    elif e.calls.begun is not None:
        yield _describe_later_start(e, e.calls.begun)
    elif e.calls.alone:
        yield Mistake(
            "single-token",
            f"A single token at position 7 differs by {e.error('offset'):.2g} from the same token"
            " among others: a decode step would be wrong. Is an axis of length 1 dropped, or the"
            " position of a single token taken for 0?",
        )
    else:
        yield Mistake(
            "pieces-differ",
            f"Positions 7 to 19 differ by {e.error('offset'):.2g} from the same positions within"
            " another call.",
        )


def _describe_later_start(e: Evidence, start: int) -> Mistake:
    """A call that begins at ``start`` is other than the same with position 0 before it."""
    run = f"{start:,} to {start + 7:,}"
    if e.calls.counted:
        return Mistake(
            "offset-ignored",
            f"Positions are counted from the smallest one of a call: {run} come out as 0 to 7,"
            " unless 0 is in the same call. A decode step or a piece of a prompt gets the wrong"
            " place.",
        )
    return Mistake(
        "pieces-differ",
        f"Positions {run} differ by {e.error('offset'):.2g} from the same positions in a call that"
        " begins at 0.",
    )


def detect_randomness(e: Evidence) -> Mistakes:
    if not e.calls.repeatable:
        yield Mistake(
            "not-repeatable",
            "The same call twice in a row gives different results: there is dropout or noise in it"
            " (module.eval() switches that off), or a count is kept from call to call.",
        )


def detect_history(e: Evidence) -> Mistakes:
    if e.fails("history") and not e.seen.by_chance:
        after = e.calls.after or "calls at other positions, lengths and dtypes"
        error = e.error("history")
        differs = f"differs by {error:.2g}" if math.isfinite(error) else "is refused or not finite"
        yield Mistake(
            "history",
            f"Results depend on earlier calls: after {after} the same call {differs}. Something is"
            " kept between calls (a table, a longest length, a dtype); derive it from the"
            " arguments.",
        )


def detect_batch_dependence(e: Evidence) -> Mistakes:
    if e.fails("batch"):
        following = e.seen.lengths is not None and e.seen.lengths.short_up_to is not None
        following = following and not e.calls.alike
        why = "one length is taken for the whole batch" if following else "rows share something"
        yield Mistake(
            "batch-mates",
            f"A row changes by {e.error('batch'):.2g} when it is joined by {e.calls.mates}: {why}."
            " Take each row's own positions and length.",
        )


def detect_dtype_change(e: Evidence) -> Mistakes:
    if e.calls.changed_dtypes:
        listed = ", ".join(f"{a} -> {b}" for a, b in e.calls.changed_dtypes.items())
        yield Mistake(
            "dtype-changed",
            f"The result has another dtype than the input ({listed}): cast it back, else the rest"
            " of the model runs in, or fails on, the wider type.",
        )


def detect_input_change(e: Evidence) -> Mistakes:
    if e.fails("input"):
        names = " and ".join(e.calls.changed_inputs)
        yield Mistake(
            "input-modified",
            f"The function overwrites what it is given ({names}, by up to {e.error('input'):.2g}):"
            " whoever uses that again gets something else. Work on a copy, or say so in the name.",
        )


def detect_ignored_strides(e: Evidence) -> Mistakes:
    if e.fails("strides"):
        yield Mistake(
            "strides-ignored",
            f"[B, T, H, D] transposed gives another result than its copy in order, by"
            f" {e.error('strides'):.2g}: strides are ignored. Use reshape or contiguous().",
        )


def detect_overwritten_result(e: Evidence) -> Mistakes:
    if e.fails("kept"):
        yield Mistake(
            "result-overwritten",
            f"A later call overwrites the result of an earlier one (by {e.error('kept'):.2g}): both"
            " are the same memory. Give back a tensor of its own.",
        )


RULES = (
    detect_half_positions,
    detect_dtype_differences,
    detect_call_length,
    detect_far_positions,
    detect_half_tables,
    detect_half_angles,
    detect_half_frequencies,
    detect_ignored_offset,
    detect_randomness,
    detect_history,
    detect_batch_dependence,
    detect_dtype_change,
    detect_input_change,
    detect_ignored_strides,
    detect_overwritten_result,
)
