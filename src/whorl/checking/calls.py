"""Properties of calls: dtypes, far positions, pieces, rows, earlier calls, the input itself.

Truth is what the pairs' rates predict, which were measured at positions 0 .. 15 in the widest type
that the function answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .lengths import Lengths
from .measure import blocks, predicted
from .probe import DTYPES, NoAnswerError, Probe
from .properties import Results
from .report import Measured
from .structure import Pairs
from .study import Study

__all__ = ["Calls", "call_properties", "first_answer"]

#: Where positions in bfloat16 (from 257) and float16 (from 2049) go wrong, and beyond.
_FAR = (*range(300), *range(508, 516), *range(1022, 1028), *range(2044, 2054), *range(4090, 4097))
_HALVES = ("bfloat16", "float16")


@dataclass
class Calls:
    """Results by name, and what the diagnoses need to know of them."""

    results: Results = field(default_factory=dict)
    first_wrong: dict[str, int] = field(default_factory=dict)  # dtype -> position
    changed_dtypes: dict[str, str] = field(default_factory=dict)  # given -> got
    repeatable: bool = True  # the same call twice in a row gives the same
    stale: bool = False  # the answer of an earlier call at other positions came back
    left_behind: float = 0.0  # by which calls in half precision change later ones
    after: str = ""  # which earlier calls change a result
    mates: str = ""  # which batch-mates do

    def add(self, name: str, error: float, limit: float) -> None:
        self.results[name] = (Measured(error <= limit, error), limit)


def first_answer(probe: Probe) -> Tensor:
    """A call that is made before all others and once more at the end."""
    return probe.wide(_vector(probe, 1, 2, 11), torch.arange(11))[0]


def call_properties(seen: Study, before: Tensor) -> Calls:
    """All of them, long and half-precision calls last: a poisoned cache would spoil the others.

    before: the ``first_answer``.
    """
    calls, probe = Calls(), seen.probe
    limit = max(1e-5, 8 * float(torch.finfo(DTYPES[probe.form.dtype]).eps))
    calls.add("input", _input(probe), 0.0)
    calls.repeatable = _apart(first_answer(probe), first_answer(probe)) <= limit
    if seen.pairs is None or seen.turning is None:
        _batch(calls, seen, limit)
        _dtypes(calls, probe)
        calls.add("history", _apart(first_answer(probe), before), limit)
        return calls
    _offset(calls, seen, seen.pairs, limit)
    _batch(calls, seen, limit)
    _far(calls, seen, seen.pairs)
    _dtypes(calls, probe)
    _history(calls, seen, seen.pairs, before, limit)
    return calls


def _vector(probe: Probe, *shape: int, seed: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, probe.head_dim, generator=generator).double()


def _apart(a: Tensor, b: Tensor) -> float:
    """The largest difference; numbers that are not finite differ from all but themselves."""
    same = (a == b) | (a.isnan() & b.isnan())
    difference = (a - b).abs().nan_to_num(nan=math.inf)
    return float(torch.where(same, torch.zeros_like(difference), difference).max())


def _input(probe: Probe) -> float:
    """How much q changes by being passed; cast first, so that it is the function's own copy."""
    length = probe.next_length()
    x = _vector(probe, 2, 2, length).to(DTYPES[probe.form.dtype])
    given = x.clone()
    probe.ask(given, torch.arange(length), as_it_is=True)
    return _apart(given.double(), x.double())


def _offset(calls: Calls, seen: Study, pairs: Pairs, limit: float) -> None:
    """Positions 0 .. T - 1, then as many from 7 on: the second must not be the first again."""
    probe = seen.probe
    x = _vector(probe, 1).expand(1, 1, 13, -1)
    whole = probe.turned(x[0, 0, :1], range(7, 20))[:, 0]
    begun = probe.wide(x, torch.arange(13))[0][0, 0]
    try:
        piece = probe.wide(x, torch.arange(7, 20))[0][0, 0]
    except NoAnswerError:
        calls.add("offset", math.inf, limit)
        return
    error = float((piece - whole).abs().max())
    calls.stale = error > limit and float((piece - begun).abs().max()) <= limit
    if probe.addressing == "none":
        calls.stale, error = True, float((piece - _predicted_run(seen, pairs, x)).abs().max())
    calls.add("offset", error, limit)


def _predicted_run(seen: Study, pairs: Pairs, x: Tensor) -> Tensor:
    """x [1, 1, T, D] rotated to positions 7 .. by the measured rates: [T, D]."""
    assert seen.turning is not None
    out, vector = x[0, 0].clone(), x[0, 0, 0]
    turn = predicted(seen.turning, range(7, 7 + x.shape[2]))  # [T, n, 2, 2]
    given = torch.stack((vector[pairs.a_in], vector[pairs.b_in]), dim=-1)
    turned = torch.einsum("tnij,nj->tni", turn, given)
    out[:, pairs.a_out], out[:, pairs.b_out] = turned.unbind(-1)
    return out


def _batch(calls: Calls, seen: Study, limit: float) -> None:
    """A short row alone, and with a row that is far along (or as far, where rows share places)."""
    probe, far = seen.probe, 40
    if seen.lengths is not None:
        short, reach = seen.lengths.short_up_to, seen.lengths.reach
        far = max(4, min(500 if short is None else 3 * short, reach - 20))
    far = far if probe.rows else 0
    x = _vector(probe, 2, 1, 9)
    at = torch.stack((torch.arange(9), torch.arange(9) + far))
    ask = probe.ask_rows if probe.rows else lambda x, at: probe.wide(x, at[0])
    try:
        probe.turned(x[:1, 0, 0], range(8))  # a short call, for those that keep the longest length
        alone = ask(x[:1], at[:1])[0]
        together = ask(x, at)[0][:1]
        probe.turned(x[:1, 0, 0], range(8))
    except NoAnswerError:
        return
    calls.mates = f"a row at positions {far} to {far + 8}"
    calls.add("batch", _apart(alone, together), limit)


def _far(calls: Calls, seen: Study, pairs: Pairs) -> None:
    """Every dtype against the rates, at positions where narrow ones lose count.

    Each scan goes further than all calls before it, so that a table kept from a wider type is too
    short and is made again; the first scan once more at the end shows what the others left behind.
    """
    probe, lengths = seen.probe, seen.lengths
    assert seen.turning is not None
    assert lengths is not None
    places, further = _places(probe, lengths)
    want = predicted(seen.turning, places)
    growing = torch.tensor(places).double() * float(seen.turning.rate.abs().max())
    own, before = probe.form.dtype, None
    for dtype in (own, *(d for d in ("float32", *_HALVES) if d != own)):
        if probe.form.library == "numpy" and dtype == "bfloat16":
            continue
        further = 0 if not further else further + 8
        beyond = [further] if further else []
        try:
            got = blocks(probe, pairs, [*places, *beyond], dtype)[: len(places)]
        except NoAnswerError:
            continue
        errors = (got - want).abs().amax((1, 2, 3)).nan_to_num(nan=math.inf)
        # Four roundings of the result; angles in float32, and rates known to the same precision.
        unit = max(float(torch.finfo(DTYPES[dtype]).eps), 2.0**-23)
        rounding = 8 * unit * float(seen.turning.size.max())
        allowed = rounding + 4 * max(2.0**-23, seen.unit) * growing
        wrong = (errors > allowed).nonzero().flatten()
        if len(wrong):
            calls.first_wrong[dtype] = places[int(wrong[0])]
        worst = int((errors / allowed).argmax())
        calls.add("far" if dtype == own else dtype, float(errors[worst]), float(allowed[worst]))
        before = got if dtype == own else before
    if before is not None:
        calls.left_behind = _apart(blocks(probe, pairs, places), before)


def _places(probe: Probe, lengths: Lengths) -> tuple[list[int], int]:
    """Where to look, and a place further than all calls so far; 0 where none can be had."""
    if lengths.short_up_to is not None:
        return [p for p in _FAR if p < lengths.short_up_to], 0
    if lengths.problem is not None:
        return [p for p in _FAR if p < lengths.reach], 0
    asked = lengths.reach if probe.addressing == "each" else 0
    return list(_FAR), max(asked, _FAR[-1]) + 8


def _dtypes(calls: Calls, probe: Probe) -> None:
    changed, length = calls.changed_dtypes, 9
    for dtype in DTYPES:
        if probe.form.library == "numpy" and dtype == "bfloat16":
            continue
        try:
            outs = probe.ask(_vector(probe, 1, 1, length), torch.arange(length), dtype)
        except NoAnswerError:
            continue
        for out in outs:
            if out.dtype != DTYPES[dtype]:
                changed[dtype] = str(out.dtype).removeprefix("torch.")
    calls.add("dtype", float(len(changed)), 0.0)


def _history(calls: Calls, seen: Study, pairs: Pairs, before: Tensor, limit: float) -> None:
    """The first answer again, after calls elsewhere, longer ones and ones in half precision."""
    probe, lengths = seen.probe, seen.lengths
    error = max(calls.left_behind, _apart(first_answer(probe), before))
    if error > limit:
        calls.after = "calls at other positions, lengths and dtypes"
    if lengths is not None and lengths.past and probe.addressing == "each":
        short, long = lengths.past[0][0], lengths.past[-1][0]
        fresh, later = (_context(probe, pairs, short, earlier) for earlier in (None, long))
        moved = _apart(fresh, later)
        if moved > limit:
            calls.after = f"a context of {long} tokens before one of {short}"
        error = max(error, moved)
    calls.add("history", error, limit)


def _context(probe: Probe, pairs: Pairs, length: int, earlier: int | None) -> Tensor:
    """Blocks within a context of ``length``, after a short call and perhaps a longer one."""
    places: Sequence[int] = range(8)
    blocks(probe, pairs, places)
    if earlier is not None:
        blocks(probe, pairs, [*places, earlier - 1])
    return blocks(probe, pairs, [*places, length - 1])[:8]
