"""Mistakes in dtypes, caches, batches and memory: what shows only when calls are compared.

Every rule looks at all measurements, ``e``, and yields the mistakes that it finds.
"""

import math
from typing import Any

import torch
from torch import Tensor

from .evidence import Evidence, Mistakes
from .report import Mistake
from .rounding import compute_tolerance

__all__ = ["RULES"]


#: Integers that overflow, by the distance between a position and the one whose angles it gets.
_OVERFLOWS = {256: "8-bit integers", 65_536: "16-bit integers"}


def detect_half_positions(e: Evidence) -> Mistakes:
    for kind, first in (("bfloat16", 257), ("float16", 2049)):
        hit = [d for d, wrong in e.calls.far.rounded_positions.items() if wrong == first]
        if hit:
            yield Mistake(
                "bf16-positions" if kind == "bfloat16" else "fp16-positions",
                f"Wrong from position {first} on (inputs in {', '.join(hit)}), which {kind} cannot"
                f" represent: positions are kept in {kind}. Compute positions and angles in"
                " float32 or wider, whatever the dtype of the input.",
            )


def detect_dtype_differences(e: Evidence) -> Mistakes:
    """Dtypes whose results become wrong earlier than those in which frequencies were measured."""
    far, own = e.calls.far, e.function.probe.form.dtype
    if e.function.half_angles:  # in every dtype
        return
    limit = far.first_wrong.get(own, 2**30)
    early = {d: w for d, w in far.first_wrong.items() if d != own and w < limit}
    early = {d: w for d, w in early.items() if d not in far.rounded_positions}
    creeping = [d for d, w in early.items() if w < 257 and far.excess[d] < 4 and d != "float32"]
    if creeping:
        yield Mistake(
            "half-angles",
            f"Inputs in {' and '.join(creeping)} give other angles, from position"
            f" {min(early[d] for d in creeping)} on and more at every further one: frequencies or"
            " angles are computed in the dtype of the input. Compute them in float32 or wider.",
        )
    for dtype in [d for d in early if d not in creeping]:
        yield Mistake(
            "dtype-differs",
            f"Inputs in {dtype} give other results than those in {own}, from position"
            f" {early[dtype]} on and by up to {far.largest_errors[dtype]:.2g}, which rounding does"
            " not explain. Does the code handle that dtype separately?",
        )


def detect_call_length(e: Evidence) -> Mistakes:
    if e.fails("length"):
        yield Mistake(
            "call-length",
            f"Positions 0 to 9 differ by up to {e.error('length'):.2g} between"
            f" {e.calls.compared_lengths}, while the same call again gives the same: results depend"
            " on the length of the call, and on no earlier call. Frequencies may depend on the"
            " context, but on its largest position (a decode step is a call of one token), and only"
            " beyond the trained length.",
        )


def detect_far_positions(e: Evidence) -> Mistakes:
    far, own = e.calls.far, e.function.probe.form.dtype
    wrong = far.first_wrong.get(own)
    if wrong is None or own in far.rounded_positions or e.fails("layout") or e.function.half_angles:
        return
    if wrong < len(e.function.matrices) and not far.wrong_call_tokens:
        return  # the first positions are no rotation; other rules say so
    if far.wrong_call_tokens:
        yield Mistake(
            "call-length",
            f"In a call of {far.wrong_call_tokens:,} tokens position {wrong:,} is wrong (by up to"
            f" {far.largest_errors[own]:.2g}), in a short one it is right: results depend on how"
            " many tokens a call has.",
        )
        return
    if far.actual_position is None:
        why = "angles there do not continue those of the first positions. Does a table end?"
    else:
        stored_as = _OVERFLOWS.get(wrong - far.actual_position)
        hint = "a table ends, or positions are counted wrongly"
        if stored_as is not None:
            hint = f"positions are kept in {stored_as}"
        why = f"it gets the angles of position {far.actual_position:,}; {hint}."
    yield Mistake("far-positions", f"Wrong from position {wrong:,} on: {why}")


def detect_half_tables(e: Evidence) -> Mistakes:
    if (name := e.function.half_tables) is not None:
        yield Mistake(
            "half-tables",
            f"cos and sin are {name} numbers although the input is {e.function.probe.form.dtype}:"
            " tables were computed or kept in half precision, as a buffer is when a model is cast."
            " Keep them in float32, or compute them again.",
        )


def detect_half_angles(e: Evidence) -> Mistakes:
    """Angles that are rounded to half precision although the input is wider."""
    if not e.function.half_angles or e.function.rotations is None or e.fails("layout"):
        return
    misfit = e.function.rotations.angle_misfit
    worst = e.calls.far.largest_errors.get(e.function.probe.form.dtype)
    known = worst is not None and e.calls.far.from_rule
    shown = "" if not known else f" (results at far positions by up to {worst:.2g})"
    yield Mistake(
        "half-angles",
        f"At positions 0 to 15 angles differ from positions times frequencies by up to {misfit:.2g}"
        f" of their size{shown}, and every angle is a {e.function.half_angles} number although the"
        f" input is {e.function.probe.form.dtype}: angles are computed in {e.function.half_angles}."
        " Compute them in float32 or wider, whatever the dtype of the input.",
    )


def detect_half_frequencies(e: Evidence) -> Mistakes:
    """Frequencies that are rounded to half precision, and would fit a rule before rounding."""
    if e.function.rotations is None or e.function.precision not in ("float64", "float32"):
        return
    inv_freq = torch.tensor(e.found.inv_freq, dtype=torch.float64).abs()
    for name in ("bfloat16", "float16"):
        rounded = inv_freq.to(getattr(torch, name)).double()
        tolerance = compute_tolerance(inv_freq, e.function.rounding_unit)
        near = (rounded - inv_freq).abs() <= 4 * tolerance * inv_freq
        if bool(near.all()) and e.found.base is not None and e.found.error > 1e-4:
            yield Mistake(
                "half-frequencies",
                f"Frequencies are {name} numbers: they were computed or kept in half precision, as"
                " a buffer is when a model is cast. At position 1,000 the angles are wrong by up to"
                f" {_compute_angle_error(e, inv_freq):.2g} radians.",
            )
            return


def _compute_angle_error(e: Evidence, inv_freq: Tensor) -> float:
    """Error in radians, at position 1,000, of the angles of rounded frequencies."""
    rope: Any = e.found.build()
    return float((rope.frequencies().inv_freq.abs() - inv_freq).abs().max()) * 1000


def detect_ignored_offset(e: Evidence) -> Mistakes:
    if not e.fails("offset"):
        return
    if e.function.probe.addressing == "none":
        yield Mistake(
            "offset-ignored",
            "Positions are ignored: every call is rotated as 0 .. T - 1. The first token of a"
            " decode step, of a packed document or of a left-padded row gets the wrong position.",
        )
    elif e.calls.repeats_earlier_call:
        yield Mistake(
            "offset-ignored",
            "A cache ignores the offset: positions 7 to 19 after 0 to 12 gave the result of 0 to"
            " 12 again, while a call of another length gives the right result. Positions must be"
            " part of the key of the cache, or index its table.",
        )
    elif e.calls.wrong_start is not None:
        yield _describe_later_start(e, e.calls.wrong_start)
    elif e.calls.single_token_differs:
        yield Mistake(
            "single-token",
            f"A single token at position 7 differs by {e.error('offset'):.2g} from the same token"
            " in a longer call: a decode step would be wrong. Is an axis of length 1 dropped, or is"
            " the position of a single token taken as 0?",
        )
    else:
        yield Mistake(
            "pieces-differ",
            f"Positions 7 to 19 differ by {e.error('offset'):.2g} from the same positions in"
            " another call.",
        )


def _describe_later_start(e: Evidence, start: int) -> Mistake:
    """The mistake of calls that begin at ``start`` and differ from those that begin at 0."""
    run = f"{start:,} to {start + 7:,}"
    if e.calls.counts_from_start:
        return Mistake(
            "offset-ignored",
            f"Positions are counted from the smallest one of a call: {run} are rotated as 0"
            " to 7, unless 0 is in the same call. A decode step or a part of a prompt gets wrong"
            " positions.",
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
            "The same call twice in a row gives different results: the function uses dropout or"
            " noise (module.eval() switches that off), or counts its calls.",
        )


def detect_history(e: Evidence) -> Mistakes:
    if e.fails("history") and not e.function.draws_random_numbers:
        after = e.calls.changed_after or "calls at other positions, lengths and dtypes"
        error = e.error("history")
        differs = f"differs by {error:.2g}" if math.isfinite(error) else "is refused or not finite"
        yield Mistake(
            "history",
            f"Results depend on earlier calls: after {after} the same call {differs}. Something is"
            " kept between calls (a table, the longest length, a dtype); compute it from the"
            " arguments instead.",
        )


def detect_batch_dependence(e: Evidence) -> Mistakes:
    if e.fails("batch"):
        by_length = e.depends_on_context and not e.calls.mates_are_copies
        why = "one length is used for the whole batch" if by_length else "rows share something"
        yield Mistake(
            "batch-mates",
            f"A row changes by {e.error('batch'):.2g} in a batch with {e.calls.batch_mates}: {why}."
            " Use each row's own positions and length.",
        )


def detect_dtype_change(e: Evidence) -> Mistakes:
    if e.calls.changed_dtypes:
        listed = ", ".join(f"{a} -> {b}" for a, b in e.calls.changed_dtypes.items())
        yield Mistake(
            "dtype-changed",
            f"The result has another dtype than the input ({listed}): cast it back, or the rest of"
            " the model runs in the other dtype, or fails.",
        )


def detect_input_change(e: Evidence) -> Mistakes:
    if e.fails("input"):
        names = " and ".join(e.calls.changed_inputs)
        yield Mistake(
            "input-modified",
            f"The function overwrites its arguments ({names}, by up to {e.error('input'):.2g}):"
            " code that uses them afterwards gets other values. Work on a copy, or say so in the"
            " name of the function.",
        )


def detect_ignored_strides(e: Evidence) -> Mistakes:
    if e.fails("strides"):
        yield Mistake(
            "strides-ignored",
            f"A transposed tensor [B, T, H, D] gives another result than its contiguous copy, by"
            f" {e.error('strides'):.2g}: strides are ignored. Use reshape or contiguous().",
        )


def detect_overwritten_result(e: Evidence) -> Mistakes:
    if e.fails("kept"):
        yield Mistake(
            "result-overwritten",
            f"A later call overwrites the result of an earlier one (by {e.error('kept'):.2g}): both"
            " use the same memory. Return a new tensor.",
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
