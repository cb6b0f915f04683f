"""All calls of a rotary function of which nothing but its arguments is known.

    x         fn(x, positions)        one tensor [B, H, T, D]
    qk        fn(q, k, positions)     both rotated
    cos_sin   fn(q, k, cos, sin)      both rotated, with tables made here

The form of a call is found by trying: torch or NumPy, positions [T] or [B, T], whole numbers or
floats, float64 or float32; tables of cos and sin as in call_forms.py. An error that the function
raises becomes ``NoAnswerError``.

Every call has more tokens than all calls before it. So a cache whose key is the length is built
again, and cannot return results of other positions; ``history`` in calls.py repeats lengths on
purpose. Vectors are the rows of one batch, or have a call each if rows change each other.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .call_forms import DTYPES, LIBRARIES, CallForm, Kind, build_tables, list_call_forms

__all__ = [
    "ConstantLengthProbe",
    "FunctionProbe",
    "NoAnswerError",
    "RaisedError",
    "RefusedLaterError",
]

#: Which positions count: of every token, of the first one only, or none (0 .. T - 1 always).
Addressing = Literal["each", "first", "none"]

#: Longer calls do not count for the rule that every call is longer than those before it: all later
#: calls would be as long.
_LONG_CALL = 256
_LONGEST_RUN = 8200
_FIRST_LENGTH = 7


class NoAnswerError(Exception):
    """The function raised an error, or returned something that is not its input rotated."""


class RaisedError(NoAnswerError):
    """The function raised an error."""


class RefusedLaterError(NoAnswerError):
    """The function answered its first call but not the next."""


class FunctionProbe:
    """Calls one function, in the form that it accepts and every time with more tokens.

    role: which result is measured, 0 for x or q and 1 for k; ``split_roles`` gives both probes.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        head_dim: int,
        kind: Kind = "x",
        name: str = "fn",
    ) -> None:
        self.fn, self.head_dim, self.kind = fn, head_dim, kind
        self.name = name
        self.role = 0
        self._lengths = [16]  # shared by the probes of queries and keys
        self.form = self._find_form()
        self.addressing: Addressing = "each"
        self.rows_interact = False  # whether each vector needs its own call
        try:
            self.has_row_positions = self._supports_row_positions()
            self.addressing = self._find_addressing()
            self.rows_interact = self._has_interacting_rows()
        except NoAnswerError as problem:
            said = (
                f"answered a call of {_FIRST_LENGTH} tokens and refuses one of {self._lengths[0]}:"
                f" it {problem}."
            )
            if self._repeats_first_call():
                raise RefusedLaterError(
                    f"{said} At other positions, {_FIRST_LENGTH} tokens give the results of the"
                    " first call: is a table kept from it?"
                ) from problem
            raise NoAnswerError(said) from problem

    def split_roles(self) -> "list[FunctionProbe]":
        """A probe that measures x or q, and one that measures k if there is one."""
        if self.kind == "x":
            return [self]
        keys = copy.copy(self)
        keys.role = 1
        return [self, keys]

    def ask(
        self,
        x: Tensor,
        positions: Tensor,
        dtype: str | None = None,
        *,
        form: CallForm | None = None,
        keys: Tensor | None = None,
    ) -> list[Tensor]:
        """Results of the function for x [B, H, T, D] at positions [T] or [B, T]: [x] or [q, k].

        It gets copies in ``dtype``, of x as q and as k, or of ``keys`` as k. Results are copies in
        float64, because a later call may overwrite them.
        """
        form = form or self.form
        given = x.to(DTYPES[dtype or form.dtype], copy=True)
        keys = None if keys is None else keys.clone()
        outs = self.call(self.build_arguments(given, positions, form, keys), form)
        return [out.to(torch.float64, copy=True) for out in outs]

    def build_arguments(
        self,
        x: Tensor,
        positions: Tensor,
        form: CallForm | None = None,
        keys: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Arguments of the function by name; x itself, not a copy, is one of them."""
        form = form or self.form
        given = {"x" if self.kind == "x" else "q": x}
        if self.kind != "x":
            given["k"] = x.clone() if keys is None else keys.to(x.dtype)
        if self.kind != "cos_sin":
            return {**given, "positions": self._convert_positions(positions, x, form)}
        assert form.tables is not None
        cos, sin = build_tables(form.tables, positions, x)
        return {**given, "cos": cos, "sin": sin}

    def call(self, given: dict[str, Tensor], form: CallForm | None = None) -> list[Tensor]:
        """Results for these arguments; the function may change them; they may need gradients."""
        form = form or self.form
        graph = any(tensor.requires_grad for tensor in given.values())
        tensors: list[Any] = list(given.values())
        if form.library == "numpy":
            tensors = [tensor.detach().numpy() for tensor in tensors]
        with warnings.catch_warnings(), torch.set_grad_enabled(graph):
            warnings.simplefilter("ignore")  # the same ones in every call
            try:
                returned = self.fn(*tensors)
            except Exception as error:  # any error is a result
                reason = str(error).strip().splitlines()
                said = f"{type(error).__name__}: {reason[0] if reason else ''}".rstrip(": ")
                raise RaisedError(f"raised {said}") from error
        wanted = [given[name].shape for name in ("x", "q", "k") if name in given]
        return self._check_results(returned, wanted, form)

    def ask_role(
        self, x: Tensor, positions: Tensor, dtype: str | None = None, form: CallForm | None = None
    ) -> Tensor:
        """Result of this role, as a copy in float64."""
        return self.ask(x, positions, dtype, form=form)[self.role]

    def draw_vectors(self, *shape: int, seed: int) -> Tensor:
        """Random vectors [*shape, D] in float64."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(*shape, self.head_dim, generator=generator).double()

    def rotate_vectors(
        self, vectors: Tensor, positions: Sequence[int], dtype: str | None = None
    ) -> Tensor:
        """Vectors [N, D] rotated to each of the positions: float64 [len(positions), N, D].

        If the function does not use every position, calls have consecutive positions.
        """
        index: dict[int, Tensor] = {}
        for run in self._split_into_runs(positions):
            x = vectors[:, None, None, :].expand(-1, 1, len(run), -1)
            batches = torch.split(x, 1 if self.rows_interact else len(x))
            out = torch.cat([self.ask_role(rows, torch.tensor(run), dtype) for rows in batches])
            out = out[:, 0]  # [N, T, D]
            if self.addressing == "each":
                return out[:, : len(positions)].transpose(0, 1)
            for n, position in enumerate(run):
                index.setdefault(position, out[:, n])
        return torch.stack([index[position] for position in positions])

    def _split_into_runs(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Positions of one or more calls that include these, each call longer than those before."""
        if self.addressing == "each":
            yield [
                *positions,
                *[max(positions)] * (self.take_new_length(len(positions)) - len(positions)),
            ]
            return
        ordered, done = sorted(set(positions)), -1
        whole = ordered[-1] - ordered[0] < len(ordered)
        longest = len(ordered) if whole else _LONGEST_RUN  # consecutive positions in one call
        for position in ordered:
            if position <= done:
                continue
            first = 0 if self.addressing == "none" else position
            last = ordered[-1]
            if self.addressing == "first":
                last = max(p for p in ordered if p - first < longest)
            length = self.take_new_length(last - first + 1)
            done = first + length - 1
            yield list(range(first, first + length))

    def take_new_length(self, at_least: int = 0) -> int:
        """A number of tokens larger than that of all calls so far, except very long ones."""
        if at_least > _LONG_CALL:
            return at_least
        self._lengths[0] = max(at_least, self._lengths[0] + 1)
        return self._lengths[0]

    @contextmanager
    def repeat_lengths(self, latest: int) -> Iterator[None]:
        """Calls inside have the same numbers of tokens as those that came after ``latest``."""
        now, self._lengths[0] = self._lengths[0], latest
        try:
            yield
        finally:
            self._lengths[0] = now

    @property
    def latest_length(self) -> int:
        """Largest number of tokens of all calls so far, except very long ones."""
        return self._lengths[0]

    def _convert_positions(self, positions: Tensor, x: Tensor, form: CallForm) -> Tensor:
        whole, rank = form.positions
        at = positions if positions.dim() == 2 or rank == 1 else positions.expand(len(x), -1)
        at = at.clone()  # the function may change it
        if whole == "int":
            return at
        # float32 at least, because half precision rounds positions
        return at.to(torch.float64 if x.dtype == torch.float64 else torch.float32)

    def _check_results(
        self, returned: Any, wanted: list[torch.Size], form: CallForm
    ) -> list[Tensor]:
        results = [returned] if self.kind == "x" else returned
        if not isinstance(results, (tuple, list)) or len(results) != len(wanted):
            raise NoAnswerError(f"gave {type(returned).__name__} instead of rotated q and k")
        tensors = []
        for out, shape in zip(results, wanted, strict=True):
            if form.library == "numpy" and not isinstance(out, Tensor) and hasattr(out, "dtype"):
                out = _convert_array(out)
            elif form.library == "numpy" or not isinstance(out, Tensor):
                raise NoAnswerError(f"gave {type(out).__name__} for {LIBRARIES[form.library]}")
            if out.dtype.is_complex or out.dtype == torch.bool:
                raise NoAnswerError(f"gave {str(out.dtype).removeprefix('torch.')} numbers")
            if out.shape != shape:
                shapes = f"{list(out.shape)} for an input of {list(shape)}"
                raise NoAnswerError(f"gave a result of shape {shapes}")
            tensors.append(out)
        return tensors

    def _find_form(self) -> CallForm:
        """The first form that gives finite numbers; with tables, the first that keeps norms."""
        attempts: list[tuple[CallForm, str]] = []
        answered: list[tuple[float, CallForm]] = []
        x = self.draw_vectors(2, 3, _FIRST_LENGTH, seed=0)
        at = torch.arange(_FIRST_LENGTH)
        for form in list_call_forms(self.kind, self.head_dim):
            try:
                out = self.ask(x, at, form=form)
            except NoAnswerError as problem:
                attempts.append((form, str(problem)))
                continue
            if not all(bool(o.isfinite().all()) for o in out):
                attempts.append((form, "gave numbers that are not finite"))
                continue
            if form.tables is None:
                return form
            change = float((out[0].norm(dim=-1) / x.norm(dim=-1) - 1).abs().max())
            if change < 1e-4:
                return form
            answered.append((change, form))
        if answered:  # no arrangement of tables keeps norms: take the first
            return answered[0][1]
        firsts: dict[str, CallForm] = {}
        for form, why in attempts:
            firsts.setdefault(why, form)
        lines = [f"called with {form}, it {why}" for why, form in firsts.items()]
        head = f"answered none of {len(attempts)} forms.{self._suggest_transpose(x, at)}"
        raise NoAnswerError("\n".join([head, *lines[:6]]))

    def _suggest_transpose(self, x: Tensor, at: Tensor) -> str:
        """A hint for functions of [B, T, H, D], or ""."""
        for form in list_call_forms(self.kind, self.head_dim):
            try:
                outs = self.ask(x.transpose(1, 2), at, form=form)
            except NoAnswerError:
                continue
            if not all(bool(out.isfinite().all()) for out in outs):
                continue
            swap = ".transpose(1, 2)" if form.library == "torch" else ".swapaxes(1, 2)"
            return (
                " It answers tensors [B, T, H, D] but is called with [B, H, T, D]: check a function"
                f" that calls it with x{swap} and returns the result{swap}."
            )
        return ""

    def _supports_row_positions(self) -> bool:
        """Whether every row of a batch can have its own positions."""
        if self.kind == "cos_sin":
            return self.form.tables is not None and self.form.tables.is_batched
        x = self.draw_vectors(2, 1, self.take_new_length(), seed=0)
        at = torch.arange(x.shape[2])
        try:
            plain = self.ask(x, at)
            apart = self.ask(x, at.expand(2, -1), form=self.row_form)
        except NoAnswerError:
            return False
        return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(plain, apart, strict=True))

    @property
    def row_form(self) -> CallForm:
        """The form of calls in which every row has its own positions [B, T]."""
        return replace(self.form, positions=(self.form.positions[0], 2))

    def _has_interacting_rows(self) -> bool:
        """Whether the first or last of D rows gives another result than alone."""
        length = self.take_new_length()
        at = torch.arange(length)
        x = self.draw_vectors(self.head_dim, 1, length, seed=0)
        together = self.ask(x, at)
        limit = max(1e-5, 8 * float(torch.finfo(DTYPES[self.form.dtype]).eps))
        for row in (slice(0, 1), slice(-1, None)):
            alone = self.ask(x[row], at)
            for a, b in zip(alone, together, strict=True):
                if not torch.allclose(a, b[row], rtol=0, atol=limit):
                    return True
        return False

    def _repeats_first_call(self) -> bool:
        """Whether a call as long as the first gives the same results at other positions."""
        x = self.draw_vectors(2, 3, _FIRST_LENGTH, seed=0)
        at = torch.arange(_FIRST_LENGTH)
        try:
            first, later = (self.ask(x, at + shift) for shift in (0, 5))
        except NoAnswerError:
            return False
        return all(torch.equal(a, b) for a, b in zip(first, later, strict=True))

    def _find_addressing(self) -> Addressing:
        """Whether results depend on every position, on the first of a call, or on none."""
        vector = self.draw_vectors(seed=0)

        def at(positions: list[int]) -> Tensor:
            x = vector.expand(1, 1, len(positions), -1)
            return self.ask_role(x, torch.tensor(positions))[0, 0]

        run = self.take_new_length(12)
        plain = at(list(range(run)))
        if float((plain[1:] - plain[:1]).abs().max()) == 0:
            return "each"  # no channel rotates, so it cannot be measured
        shuffled = [3, 1, 7, 0, 5, 2, *[4] * (self.take_new_length(6) - 6)]
        if _are_near(at(shuffled)[:6], plain[shuffled[:6]]):
            return "each"
        later = at(list(range(5, 5 + self.take_new_length(6))))
        if _are_near(later[:6], plain[5:11]):
            return "first"
        return "none" if _are_near(later[:6], plain[:6]) else "each"


class ConstantLengthProbe(FunctionProbe):
    """A probe whose calls all have ``tokens`` tokens, the last of them at position ``largest``.

    A function whose frequencies depend on the length of a call, or on the longest call so far, has
    other frequencies in every call, which hides other mistakes. In calls of one length they are
    always the same. So longer calls are cut into pieces, shorter ones are filled up, and each ends
    with one more token at a far position.

        wanted       p0 p1 p2                        5 tokens per call, largest position L
        called with  p0 p1 p2 p2 L                   results 0, 1, 2 are returned
    """

    #: Many, because far positions are measured in calls of a thousand tokens.
    tokens = 256

    def __init__(self, probe: FunctionProbe, largest: int) -> None:
        self.__dict__.update(vars(probe))
        self.largest = largest

    def call(self, given: dict[str, Tensor], form: CallForm | None = None) -> list[Tensor]:
        """Results for these arguments, piece by piece; the arguments do not change."""
        length = given["x" if self.kind == "x" else "q"].shape[2]
        made = []
        for first in range(0, length, self.tokens - 1):
            index = torch.arange(first, first + self.tokens).clamp(max=length - 1)
            made.append(super().call(self._cut_piece(given, index), form))
        return [
            torch.cat([out[:, :, :-1] for out in each], dim=2)[:, :, :length]
            for each in zip(*made, strict=True)
        ]

    def _cut_piece(self, given: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
        axes = {"positions": -1, "cos": -2, "sin": -2}
        piece = {name: x.index_select(axes.get(name, 2), index) for name, x in given.items()}
        if "positions" in piece:
            piece["positions"][..., -1] = self.largest
        return piece


def _are_near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=2e-2 * max(1.0, float(b.abs().max())))


def _convert_array(out: Any) -> Tensor:
    import numpy as np

    array = np.array(out)  # a copy that torch may own
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise NoAnswerError(f"gave an array of {array.dtype}") from None
