"""Talking to a rotary function of which only the call is known.

    x         fn(x, positions)        one tensor [B, H, T, D]
    qk        fn(q, k, positions)     both rotated
    cos_sin   fn(q, k, cos, sin)      both rotated, with tables that we make

How it wants to be asked is found by trying: torch or NumPy, positions [T] or [B, T], whole numbers
or floats, float64 or float32. What it raises becomes ``NoAnswerError`` with the reason.

Every call has another number of tokens than all before it, a larger one, so that a cache kept by
length and read in the wrong place is made afresh and does not spoil what is measured; ``history``
in calls.py repeats lengths on purpose. Vectors are asked for as the rows of one batch, or each in
a call of its own where a row changes with the others in its batch.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from .table_forms import TableForm, build_tables, list_table_forms

__all__ = [
    "DTYPES",
    "KINDS",
    "Addressing",
    "CallForm",
    "FunctionProbe",
    "Kind",
    "NoAnswerError",
    "RaisedError",
    "RefusedLaterError",
]

Kind = Literal["x", "qk", "cos_sin"]
Library = Literal["torch", "numpy"]
#: Which positions count: of every token, of the first one only, or none (0 .. T - 1 always).
Addressing = Literal["each", "first", "none"]

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
KINDS = ("x", "qk", "cos_sin")
#: Calls with more tokens than this come last and leave the count alone: they would make all later
#: ones as long.
_LONG_CALL = 256
_LONGEST_RUN = 8200
_FIRST_LENGTH = 7
_POSITION_FORMS = (("int", 1), ("int", 2), ("float", 1), ("float", 2))


class NoAnswerError(Exception):
    """The function raised, or gave back something that is not its input rotated."""


class RaisedError(NoAnswerError):
    """The function raised."""


class RefusedLaterError(NoAnswerError):
    """It answered its first call and not the next."""


@dataclass(frozen=True)
class CallForm:
    """How the function wants to be asked."""

    library: Library
    dtype: str
    places: tuple[str, int] = ("int", 1)  # whole or float positions, [T] or [B, T]
    tables: TableForm | None = None

    def __str__(self) -> str:
        parts = ["NumPy arrays" if self.library == "numpy" else "torch tensors", self.dtype]
        if self.tables is None:
            whole = "whole" if self.places[0] == "int" else "float"
            parts.append(f"{whole} positions {'[T]' if self.places[1] == 1 else '[B, T]'}")
        else:
            parts.append(str(self.tables))
        return ", ".join(parts)


class FunctionProbe:
    """One function, the form it is asked in, and the count that makes every length new.

    role: which result is looked at, 0 for x or q and 1 for k; ``roles`` gives a probe for each.
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
        self._lengths = [16]  # of all calls, those about keys included
        self.form = self._find_form()
        self.addressing: Addressing = "each"
        self.one_row = False  # whether each vector needs a call of its own
        try:
            self.rows = self._takes_rows()
            self.addressing = self._find_addressing()
            self.one_row = self._rows_interact()
        except NoAnswerError as problem:
            said = (
                f"answered a call of {_FIRST_LENGTH} tokens and refuses one of {self._lengths[0]}:"
                f" it {problem}."
            )
            if self._repeats_first_call():
                raise RefusedLaterError(
                    f"{said} At other positions, {_FIRST_LENGTH} tokens come out as in the first"
                    " call: is a table kept from it?"
                ) from problem
            raise NoAnswerError(said) from problem

    def roles(self) -> "list[FunctionProbe]":
        """A probe that looks at q, and one that looks at k where there is one."""
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
        """What the function makes of x [B, H, T, D] at positions [T] or [B, T]: [q] or [q, k].

        It gets copies in ``dtype``, of x as q and as k, or of ``keys`` as k; results are torch
        tensors of whatever dtype came back.
        """
        form = self.form if form is None else form
        given = x.to(DTYPES[dtype or form.dtype], copy=True)
        keys = None if keys is None else keys.clone()
        return self.call(self.arguments(given, positions, form, keys), form)

    def arguments(
        self,
        x: Tensor,
        positions: Tensor,
        form: CallForm | None = None,
        keys: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """What the function gets, x itself among it, by name."""
        form = self.form if form is None else form
        given = {"x" if self.kind == "x" else "q": x}
        if self.kind != "x":
            given["k"] = x.clone() if keys is None else keys.to(x.dtype)
        if self.kind != "cos_sin":
            return {**given, "positions": self._places(positions, x, form)}
        assert form.tables is not None
        cos, sin = build_tables(form.tables, positions, x)
        return {**given, "cos": cos, "sin": sin}

    def call(self, given: dict[str, Tensor], form: CallForm | None = None) -> list[Tensor]:
        """The results for these ``arguments``, which may be changed or have gradients."""
        form = self.form if form is None else form
        graph = any(tensor.requires_grad for tensor in given.values())
        tensors: list[Any] = list(given.values())
        if form.library == "numpy":
            tensors = [tensor.detach().numpy() for tensor in tensors]
        with warnings.catch_warnings(), torch.set_grad_enabled(graph):
            warnings.simplefilter("ignore")  # of their own, and a hundred times the same
            try:
                returned = self.fn(*tensors)
            except Exception as error:  # whatever it raises is its answer
                reason = str(error).strip().splitlines()
                said = f"{type(error).__name__}: {reason[0] if reason else ''}".rstrip(": ")
                raise RaisedError(f"raised {said}") from error
        wanted = [given[name].shape for name in ("x", "q", "k") if name in given]
        return self._results(returned, wanted, form)

    def wide(self, x: Tensor, positions: Tensor, dtype: str | None = None) -> Tensor:
        """The result of this role as float64; a copy, because a later call may overwrite it."""
        return self.ask(x, positions, dtype)[self.role].to(torch.float64, copy=True)

    def scaled(self, x: Tensor, positions: Tensor, scale: float) -> Tensor:
        """The result with tables that are multiplied by ``scale``; of kind "cos_sin"."""
        assert self.form.tables is not None
        tables = replace(self.form.tables, scale=scale)
        return self.wide_in(replace(self.form, tables=tables), x, positions)[self.role]

    def turned(self, vectors: Tensor, places: Sequence[int], dtype: str | None = None) -> Tensor:
        """Vectors [N, D] at each of ``places``: float64 [len(places), N, D].

        Where not every position counts, the calls are runs of consecutive ones.
        """
        index: dict[int, Tensor] = {}
        for run in self._runs(places):
            x = vectors[:, None, None, :].expand(-1, 1, len(run), -1)
            batches = torch.split(x, 1 if self.one_row else len(x))
            out = torch.cat([self.wide(rows, torch.tensor(run), dtype) for rows in batches])
            out = out[:, 0]  # [N, T, D]
            if self.addressing == "each":
                return out[:, : len(places)].transpose(0, 1)
            for n, place in enumerate(run):
                index.setdefault(place, out[:, n])
        return torch.stack([index[place] for place in places])

    def _runs(self, places: Sequence[int]) -> Iterator[list[int]]:
        """Positions of calls that cover ``places``, each call of a length not used before."""
        if self.addressing == "each":
            yield [*places, *[max(places)] * (self.next_length(len(places)) - len(places))]
            return
        ordered, done = sorted(set(places)), -1
        whole = ordered[-1] - ordered[0] < len(ordered)
        longest = len(ordered) if whole else _LONGEST_RUN  # a run that is asked for as one
        for place in ordered:
            if place <= done:
                continue
            first = 0 if self.addressing == "none" else place
            last = ordered[-1]
            if self.addressing == "first":
                last = max(p for p in ordered if p - first < longest)
            length = self.next_length(last - first + 1)
            done = first + length - 1
            yield list(range(first, first + length))

    def next_length(self, at_least: int = 0) -> int:
        """A number of tokens larger than in all calls before it, but for the few very long ones."""
        if at_least > _LONG_CALL:
            return at_least
        self._lengths[0] = max(at_least, self._lengths[0] + 1)
        return self._lengths[0]

    @contextmanager
    def repeat_lengths(self, latest: int) -> Iterator[None]:
        """Calls inside have the numbers of tokens that calls had after ``latest``."""
        now, self._lengths[0] = self._lengths[0], latest
        try:
            yield
        finally:
            self._lengths[0] = now

    @property
    def latest_length(self) -> int:
        """The largest number of tokens so far, but for the few very long calls."""
        return self._lengths[0]

    def _places(self, positions: Tensor, x: Tensor, form: CallForm) -> Tensor:
        whole, rank = form.places
        at = positions if positions.dim() == 2 or rank == 1 else positions.expand(len(x), -1)
        at = at.clone()  # theirs to change
        return at if whole == "int" else at.to(_choose_float_dtype(x))

    def _results(self, returned: Any, wanted: list[torch.Size], form: CallForm) -> list[Tensor]:
        results = [returned] if self.kind == "x" else returned
        if not isinstance(results, (tuple, list)) or len(results) != len(wanted):
            raise NoAnswerError(f"gave {type(returned).__name__} instead of rotated q and k")
        tensors = []
        for out, shape in zip(results, wanted, strict=True):
            if form.library == "numpy" and not isinstance(out, Tensor) and hasattr(out, "dtype"):
                out = _convert_array(out)
            elif form.library == "numpy" or not isinstance(out, Tensor):
                raise NoAnswerError(f"gave {type(out).__name__} for {_name_library(form.library)}")
            if out.dtype.is_complex or out.dtype == torch.bool:
                raise NoAnswerError(f"gave {str(out.dtype).removeprefix('torch.')} numbers")
            if out.shape != shape:
                shapes = f"{list(out.shape)} for an input of {list(shape)}"
                raise NoAnswerError(f"gave a result of shape {shapes}")
            tensors.append(out)
        return tensors

    def _find_form(self) -> CallForm:
        """The first form that is answered with finite numbers; for tables, with a rotation."""
        attempts: list[tuple[CallForm, str]] = []
        answered: list[tuple[float, CallForm]] = []
        x = torch.randn(2, 3, _FIRST_LENGTH, self.head_dim, generator=_make_generator()).double()
        at = torch.arange(_FIRST_LENGTH)
        for form in self._forms():
            try:
                out = self.wide_in(form, x, at)
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
        if answered:  # tables of no arrangement make it a rotation: take the plainest
            return answered[0][1]
        firsts: dict[str, CallForm] = {}
        for form, why in attempts:
            firsts.setdefault(why, form)
        lines = [f"asked with {form}, it {why}" for why, form in firsts.items()]
        head = f"answered none of {len(attempts)} forms.{self._tokens_first(x, at)}"
        raise NoAnswerError("\n".join([head, *lines[:6]]))

    def _tokens_first(self, x: Tensor, at: Tensor) -> str:
        """A hint for functions that want [B, T, H, D]."""
        for form in self._forms():
            try:
                outs = self.ask(x.transpose(1, 2), at, form=form)
            except NoAnswerError:
                continue
            if not all(bool(out.isfinite().all()) for out in outs):
                continue
            swap = ".transpose(1, 2)" if form.library == "torch" else ".swapaxes(1, 2)"
            return (
                " It answers tensors [B, T, H, D] and is asked with [B, H, T, D]: check a function"
                f" that calls it with x{swap} and gives back the result{swap}."
            )
        return ""

    def wide_in(self, form: CallForm, x: Tensor, at: Tensor) -> list[Tensor]:
        """``wide`` in another form."""
        return [out.to(torch.float64, copy=True) for out in self.ask(x, at, form=form)]

    def _forms(self) -> Iterator[CallForm]:
        libraries: tuple[Library, ...] = ("torch", "numpy")
        for library in libraries:
            if library == "numpy" and not _can_import_numpy():
                continue
            for dtype in DTYPES:
                if library == "numpy" and dtype == "bfloat16":
                    continue
                if self.kind != "cos_sin":
                    yield from (CallForm(library, dtype, places) for places in _POSITION_FORMS)
                    continue
                for tables in list_table_forms(self.head_dim):
                    yield CallForm(library, dtype, tables=tables)

    def _takes_rows(self) -> bool:
        """Whether every row of a batch can have positions of its own."""
        if self.kind == "cos_sin":
            return self.form.tables is not None and self.form.tables.batched
        x = torch.randn(
            2, 1, self.next_length(), self.head_dim, generator=_make_generator()
        ).double()
        at = torch.arange(x.shape[2])
        rows = replace(self.form, places=(self.form.places[0], 2))
        try:
            plain, apart = (
                self.wide_in(self.form, x, at),
                self.wide_in(rows, x, at.expand(2, -1)),
            )
        except NoAnswerError:
            return False
        return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(plain, apart, strict=True))

    def _rows_interact(self) -> bool:
        """Whether the first or last of D rows comes out otherwise than alone."""
        length = self.next_length()
        at = torch.arange(length)
        x = torch.randn(
            self.head_dim, 1, length, self.head_dim, generator=_make_generator()
        ).double()
        together = self.wide_in(self.form, x, at)
        limit = max(1e-5, 8 * float(torch.finfo(DTYPES[self.form.dtype]).eps))
        for row in (slice(0, 1), slice(-1, None)):
            alone = self.wide_in(self.form, x[row], at)
            for a, b in zip(alone, together, strict=True):
                if not torch.allclose(a, b[row], rtol=0, atol=limit):
                    return True
        return False

    def _repeats_first_call(self) -> bool:
        """Whether as many tokens as in the first call come out alike at other positions."""
        x = torch.randn(2, 3, _FIRST_LENGTH, self.head_dim, generator=_make_generator()).double()
        at = torch.arange(_FIRST_LENGTH)
        try:
            first, later = (self.wide_in(self.form, x, at + shift) for shift in (0, 5))
        except NoAnswerError:
            return False
        return all(torch.equal(a, b) for a, b in zip(first, later, strict=True))

    def wide_rows(self, x: Tensor, positions: Tensor) -> Tensor:
        """``wide`` for positions [B, T]; only where ``rows`` says that it can."""
        form = replace(self.form, places=(self.form.places[0], 2))
        return self.ask(x, positions, form=form)[self.role].to(torch.float64, copy=True)

    def _find_addressing(self) -> Addressing:
        """Whether the position of every token counts, that of the first, or none."""
        vector = torch.randn(self.head_dim, generator=_make_generator()).double()

        def at(positions: list[int]) -> Tensor:
            x = vector.expand(1, 1, len(positions), -1)
            return self.wide(x, torch.tensor(positions))[0, 0]

        run = self.next_length(12)
        plain = at(list(range(run)))
        if float((plain[1:] - plain[:1]).abs().max()) == 0:
            return "each"  # nothing turns, so nothing can be told apart
        shuffled = [3, 1, 7, 0, 5, 2, *[4] * (self.next_length(6) - 6)]
        if _are_near(at(shuffled)[:6], plain[shuffled[:6]]):
            return "each"
        later = at(list(range(5, 5 + self.next_length(6))))
        if _are_near(later[:6], plain[5:11]):
            return "first"
        return "none" if _are_near(later[:6], plain[:6]) else "each"


def _are_near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=2e-2 * max(1.0, float(b.abs().max())))


def _choose_float_dtype(x: Tensor) -> torch.dtype:
    """Positions as floats are float32 at least: half types do not hold them."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _name_library(library: Library) -> str:
    return "NumPy arrays" if library == "numpy" else "torch tensors"


def _can_import_numpy() -> bool:
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def _convert_array(out: Any) -> Tensor:
    import numpy as np

    array = np.array(out)  # a copy that torch may own
    if array.dtype == np.longdouble:
        array = array.astype(np.float64)
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise NoAnswerError(f"gave an array of {array.dtype}") from None


def _make_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
