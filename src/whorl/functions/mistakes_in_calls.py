"""Mistakes in queries against keys, dtypes, caches, batches and memory.

All of them show only when results or calls are compared. Every rule looks at all measurements,
``e``, and yields the mistakes that it finds.
"""

import math
from typing import Any

import torch

from .evidence import Evidence, Mistakes, Rule
from .measured_function import HALF_DTYPES
from .report import Mistake
from .roles import describe_dependence
from .rounding import compute_tolerance

__all__ = ["RULES"]

#: Integers that overflow, by the distance between a position and the one whose angles it gets.
_OVERFLOWS = {256: "8-bit integers", 65_536: "16-bit integers"}


def detect_mixed_roles(e: Evidence) -> Mistakes:
    if e.dependence is None or not e.fails("roles"):
        return
    if e.dependence == ((False, True), (True, False)):
        yield Mistake(
            "outputs-swapped",
            "The results are exchanged: the first is made of k alone and the second of q alone. It"
            " must return (q, k) in the order of its arguments.",
        )
        return
    (_, first_by_k), (second_by_q, _) = e.dependence
    crossed = first_by_k or second_by_q
    head = "Queries and keys are mixed" if crossed else "An argument is ignored"
    yield Mistake(
        "roles-mixed",
        f"{head}: {describe_dependence(e.dependence)}. The first must be made of q alone and"
        " the second of k alone.",
    )


def detect_different_keys(e: Evidence) -> Mistakes:
    if e.dependence is None or not e.fails("keys"):
        return
    if e.fails("relative"):
        then = f"Scores do not depend on distances alone (they move by {e.error('relative'):.2g})."
    else:
        then = "Scores still depend on distances alone, but not as those of two equal rotations."
    lines = "; ".join(e.differences)
    yield Mistake("keys-differ", f"Keys are treated differently from queries: {lines}. {then}")


def _detect_failure(failed: str, mistake: str, words: str) -> Rule:
    """A rule for a mistake that one failed property shows; ``words`` may say its error."""

    def detect(e: Evidence) -> Mistakes:
        if e.fails(failed):
            yield Mistake(mistake, words.format(e=e, error=e.error(failed)))

    return detect


def detect_half_positions(e: Evidence) -> Mistakes:
    for kind, short, first in (("bfloat16", "bf16", 257), ("float16", "fp16", 2049)):
        hit = [d for d, wrong in e.far.rounded_positions.items() if wrong == first]
        if hit:
            yield Mistake(
                f"{short}-positions",
                f"Wrong from position {first} on (inputs in {', '.join(hit)}), which {kind} cannot"
                f" represent: positions are kept in {kind}. Compute positions and angles in"
                " float32 or wider, whatever the dtype of the input.",
            )


def detect_dtype_differences(e: Evidence) -> Mistakes:
    """Dtypes whose results become wrong earlier than those in which frequencies were measured."""
    far, own = e.far, e.dtype
    if e.rotation is None or e.rotation.half_angles:  # in every dtype
        return
    limit = far.first_wrong.get(own, 2**30)
    known = (own, *far.rounded_positions)
    early = {d: w for d, w in far.first_wrong.items() if d not in known and w < limit}
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


def detect_far_positions(e: Evidence) -> Mistakes:
    far, wrong = e.far, e.far.first_wrong.get(e.dtype)
    if e.rotation is None or wrong is None or e.fails("layout") or e.rotation.half_angles:
        return
    if e.dtype in far.rounded_positions:
        return
    if wrong < len(e.function.matrices) and not far.wrong_call_tokens:
        return  # the first positions are no rotation; other rules say so
    if far.wrong_call_tokens:
        yield Mistake(
            "call-length",
            f"In a call of {far.wrong_call_tokens:,} tokens position {wrong:,} is wrong (by up to"
            f" {far.largest_errors[e.dtype]:.2g}), in a short one it is right: results depend on"
            " how many tokens a call has.",
        )
        return
    why = "angles there do not continue those of the first positions. Does a table end?"
    if far.actual_position is not None:
        stored_as = _OVERFLOWS.get(wrong - far.actual_position)
        hint = "a table ends, or positions are counted wrongly"
        hint = hint if stored_as is None else f"positions are kept in {stored_as}"
        why = f"it gets the angles of position {far.actual_position:,}; {hint}."
    yield Mistake("far-positions", f"Wrong from position {wrong:,} on: {why}")


def detect_half_tables(e: Evidence) -> Mistakes:
    if e.rotation is not None and (name := e.rotation.half_tables) is not None:
        yield Mistake(
            "half-tables",
            f"cos and sin are {name} numbers although the input is {e.dtype}: tables were computed"
            " or kept in half precision, as a buffer is when a model is cast. Keep them in float32,"
            " or compute them again.",
        )


def detect_half_angles(e: Evidence) -> Mistakes:
    """Angles that are rounded to half precision although the input is wider."""
    if e.rotation is None or not (name := e.rotation.half_angles) or e.fails("layout"):
        return
    misfit, far = e.rotation.rotations.angle_misfit, e.known_far_error
    shown = "" if far is None else f" (results at far positions by up to {far:.2g})"
    yield Mistake(
        "half-angles",
        f"At positions 0 to 15 angles differ from positions times frequencies by up to {misfit:.2g}"
        f" of their size{shown}, and every angle is a {name} number although the input is"
        f" {e.dtype}: angles are computed in {name}. Compute them in float32 or wider, whatever the"
        " dtype of the input.",
    )


def detect_half_frequencies(e: Evidence) -> Mistakes:
    """Frequencies that are rounded to half precision, and would fit a rule before rounding."""
    if e.rotation is None or e.rotation.precision not in ("float64", "float32"):
        return
    inv_freq = torch.tensor(e.found.inv_freq, dtype=torch.float64).abs()
    tolerance = compute_tolerance(inv_freq, e.rotation.rounding_unit)
    for name in HALF_DTYPES:
        rounded = inv_freq.to(getattr(torch, name)).double()
        near = (rounded - inv_freq).abs() <= 4 * tolerance * inv_freq
        if bool(near.all()) and e.found.base is not None and e.found.error > 1e-4:
            rope: Any = e.found.build()
            error = float((rope.frequencies().inv_freq.abs() - inv_freq).abs().max()) * 1000
            yield Mistake(
                "half-frequencies",
                f"Frequencies are {name} numbers: they were computed or kept in half precision, as"
                " a buffer is when a model is cast. At position 1,000 the angles are wrong by up to"
                f" {error:.2g} radians.",
            )
            return


def detect_ignored_offset(e: Evidence) -> Mistakes:
    if not e.fails("offset"):
        return
    if e.function.probe.addressing == "none":
        yield Mistake(
            "offset-ignored",
            "Positions are ignored: every call is rotated as 0 .. T - 1. The first token of a"
            " decode step, of a packed document or of a left-padded row gets the wrong position.",
        )
    elif e.repeats_earlier_call:
        yield Mistake(
            "offset-ignored",
            "A cache ignores the offset: positions 7 to 19 after 0 to 12 gave the result of 0 to"
            " 12 again, while a call of another length gives the right result. Positions must be"
            " part of the key of the cache, or index its table.",
        )
    elif e.wrong_start is not None and e.counts_from_start:
        yield Mistake(
            "offset-ignored",
            f"Positions are counted from the smallest one of a call: {e.wrong_start:,} to"
            f" {e.wrong_start + 7:,} are rotated as 0 to 7, unless 0 is in the same call. A decode"
            " step or a part of a prompt gets wrong positions.",
        )
    elif e.single_token_differs:
        yield Mistake(
            "single-token",
            f"A single token at position 7 differs by {e.error('offset'):.2g} from the same token"
            " in a longer call: a decode step would be wrong. Is an axis of length 1 dropped, or is"
            " the position of a single token taken as 0?",
        )
    else:
        run, other = "7 to 19", "another call"
        if e.wrong_start is not None:
            run, other = f"{e.wrong_start:,} to {e.wrong_start + 7:,}", "a call that begins at 0"
        yield Mistake(
            "pieces-differ",
            f"Positions {run} differ by {e.error('offset'):.2g} from the same positions in"
            f" {other}.",
        )


def detect_randomness(e: Evidence) -> Mistakes:
    if e.function.repeat_difference > e.function.rounding_limit:
        yield Mistake(
            "not-repeatable",
            "The same call twice in a row gives different results: the function uses dropout or"
            " noise (module.eval() switches that off), or counts its calls.",
        )


def detect_history(e: Evidence) -> Mistakes:
    if e.fails("history") and not e.function.draws_random_numbers:
        error = e.error("history")
        differs = f"differs by {error:.2g}" if math.isfinite(error) else "is refused or not finite"
        yield Mistake(
            "history",
            f"Results depend on earlier calls: after {e.changed_after} the same call {differs}."
            " Something is kept between calls (a table, the longest length, a dtype); compute it"
            " from the arguments instead.",
        )


def detect_batch_dependence(e: Evidence) -> Mistakes:
    if e.fails("batch"):
        by_length = e.depends_on_context and not e.mates_are_copies
        why = "one length is used for the whole batch" if by_length else "rows share something"
        yield Mistake(
            "batch-mates",
            f"A row changes by {e.error('batch'):.2g} in a batch with {e.batch_mates}: {why}."
            " Use each row's own positions and length.",
        )


def detect_dtype_change(e: Evidence) -> Mistakes:
    if e.changed_dtypes:
        listed = ", ".join(f"{a} -> {b}" for a, b in e.changed_dtypes.items())
        yield Mistake(
            "dtype-changed",
            f"The result has another dtype than the input ({listed}): cast it back, or the rest of"
            " the model runs in the other dtype, or fails.",
        )


def detect_input_change(e: Evidence) -> Mistakes:
    if e.fails("input"):
        names = " and ".join(e.changed_inputs)
        yield Mistake(
            "input-modified",
            f"The function overwrites its arguments ({names}, by up to {e.error('input'):.2g}):"
            " code that uses them afterwards gets other values. Work on a copy, or say so in the"
            " name of the function.",
        )


RULES: tuple[Rule, ...] = (
    detect_mixed_roles,
    detect_different_keys,
    _detect_failure(
        "grouped",
        "grouped-keys",
        "With 4 heads of queries and 2 of keys, {e.grouped_error}. Grouped-query attention has"
        " fewer heads of keys: read the shape of each tensor itself.",
    ),
    _detect_failure(
        "heads",
        "heads-differ",
        "Heads with the same vector get different results, or eight heads are refused: is the"
        " axis of heads used as that of tokens? Tensors are [B, H, T, D].",
    ),
    detect_half_positions,
    detect_dtype_differences,
    _detect_failure(
        "length",
        "call-length",
        "Positions 0 to 9 differ by up to {error:.2g} between {e.compared_lengths}, while the same"
        " call again gives the same: results depend on the length of the call, and on no earlier"
        " call. Frequencies may depend on the context, but on its largest position (a decode step"
        " is a call of one token), and only beyond the trained length.",
    ),
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
    _detect_failure(
        "strides",
        "strides-ignored",
        "A transposed tensor [B, T, H, D] gives another result than its contiguous copy, by"
        " {error:.2g}: strides are ignored. Use reshape or contiguous().",
    ),
    _detect_failure(
        "kept",
        "result-overwritten",
        "A later call overwrites the result of an earlier one (by {error:.2g}): both use the same"
        " memory. Return a new tensor.",
    ),
)
