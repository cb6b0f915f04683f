"""``evaluate_methods``: every method of extension on the weights of a model, by length.

A cell is one method at one length. Its result is the mean loss of each run of _BLOCK scored tokens,
so that two methods can be compared on the same tokens; at the target also the loss by position. In
retrieval it is the share of right answers at each depth.
"""

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.configs import read_config
from whorl.extend.plan import plan_extension
from whorl.extend.report import ExtensionPlan, MethodReport
from whorl.scaling import Scaling

from .cells import EvaluationCell, EvaluationPlan, find_alike
from .document import Measurements, build_document
from .loading import LoadedModel
from .losses import compute_scores_of_text, compute_window_losses
from .resources import check_memory, explain_memory
from .results import ResultFile
from .retrieval import build_texts, score_text
from .rotations import compute_frequencies, find_rotary_modules, select_group, use_frequencies
from .settings import PUBLISHED, SLIDING_WINDOW, ExtensionTest, choose_lengths, cut_windows

__all__ = ["EvaluationProgress", "evaluate_methods"]

_BLOCK = 32
_INTERVALS = 32  # of positions at the target
# No framework runs it, and at the target it is linear.
_LEFT_OUT = ("dynamic_linear",)
#: Share of right answers at the trained length below which retrieval at longer ones says nothing.
_LEAST_RETRIEVAL = 0.9


@dataclass(frozen=True)
class EvaluationProgress:
    """State of an evaluation: tokens read of all tokens to read, and what is read now."""

    done: int
    total: int
    label: str
    seconds_left: float | None = None


ShowProgress = Callable[[EvaluationProgress], None]


def evaluate_methods(
    loaded: LoadedModel,
    text: str,
    *,
    to: int | str,
    test: ExtensionTest | None = None,
    trained: int | None = None,
    folder: str | Path | None = None,
    force: bool = False,
    minutes: float | None = None,
    progress: ShowProgress | None = None,
    more: Sequence[MethodReport] = (),
) -> dict[str, Any]:
    """Losses and retrieval of a model with each method at every length, as plain values.

    Args:
        text: held-out text, at least as long as the target; its name is not kept.
        to, trained: as in ``whorl.extend.plan_extension``.
        folder: where results.json is kept and continued; None keeps nothing.
        force: measure again if the folder has results of other settings.
        minutes: begin no cell that would end later, by the speed so far; the result names those
            that are missing, and the next call goes on with them. At least one cell is measured.
        more: methods beside those of the config, such as what a search found.

    Raises:
        ValueError: the model has no rotation that can be changed, the text is too short, or there
            is too little memory.
    """
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0; got {quote(minutes)}.")
    test = test or ExtensionTest()
    plan = plan_extension(loaded.config, to=to, trained=trained)
    evaluation = _Evaluation(loaded, text, plan, test, folder, force, more)
    evaluation.show = progress or _show_nothing
    evaluation.deadline = None if minutes is None else time.monotonic() + 60 * minutes
    return evaluation.run(trained)


class _Evaluation:
    """One evaluation: its cells in order, and what they share."""

    def __init__(
        self,
        loaded: LoadedModel,
        text: str,
        plan: ExtensionPlan,
        test: ExtensionTest,
        folder: str | Path | None,
        force: bool,
        more: Sequence[MethodReport],
    ) -> None:
        self.loaded, self.plan, self.test = loaded, plan, test
        self.trained = plan.trained.tokens
        self.group = select_group(read_config(loaded.config))
        pairs = len(compute_frequencies(self.group, None, self.trained).inv_freq)
        self.modules = find_rotary_modules(loaded.model, pairs)
        check_memory(loaded.model, plan.target)
        tokens = loaded.encode(text)
        self.windows = cut_windows(tokens, loaded.first_tokens, plan.target, test.windows)
        lengths = choose_lengths(self.trained, plan.target)
        self.scored = min(test.scored, lengths[0])
        methods = [*_select_methods(plan, test.methods), *more]
        self.methods = {each.name: each for each in methods}
        alike = find_alike(self.group, methods, lengths)
        self.cells = EvaluationPlan(
            list(self.methods), lengths, self.trained, plan.target, alike, len(self.windows), test
        )
        settings = {
            **test.to_dict(),
            "model": loaded.name,
            "weights": loaded.digest,
            "tokens": hashlib.blake2b(repr(tokens).encode(), digest_size=16).hexdigest(),
            "trained": self.trained,
            "target": plan.target,
            "scalings": {
                each.name: None if each.scaling is None else each.scaling.to_dict()
                for each in methods
            },
        }
        self.results = ResultFile(None if folder is None else Path(folder), settings, force=force)
        self.show: ShowProgress = _show_nothing
        self.deadline: float | None = None
        self.done, self.measured, self.began = 0, 0, time.monotonic()
        self.missing: list[str] = []

    def run(self, trained: int | None) -> dict[str, Any]:
        """All cells, then the document; trained: as the caller gave it."""
        losses, first = [*self.cells.list_losses()], [*self.cells.list_first_answers()]
        answers = [*self.cells.list_answers(self.test.forms)] if first else []
        self.total = sum(cell.cost for cell in (*losses, *first, *answers))
        self._measure_all(losses)
        reasons = self._find_reasons(first)
        left = [cell for cell in answers if cell.form not in reasons]
        self.total -= sum(cell.cost for cell in answers) - sum(cell.cost for cell in left)
        self._measure_all(left)
        found = Measurements(
            name=self.loaded.name,
            config=self.loaded.config,
            given=trained,
            plan=self.plan,
            methods=tuple(self.methods.values()),
            cells=self.cells,
            scored=self.scored,
            results=self.results.cells,
            reasons=reasons,
            missing=tuple(self.missing),
        )
        document = build_document(found)
        self.results.write(document=document)
        return document

    def _measure_all(self, cells: Iterable[EvaluationCell]) -> None:
        for cell in cells:
            if self.results.get(cell.name) is not None:
                self.done += cell.cost
            elif not self._fits(cell.cost):
                self.missing.append(cell.name)
            else:
                with explain_memory(self.loaded.model, cell.row, cell.length):
                    found = self._measure(cell)
                self.results.add(cell.name, found)

    def _measure(self, cell: EvaluationCell) -> Any:
        if cell.form is not None:
            return self._measure_answers(cell, cell.form)
        if cell.row == SLIDING_WINDOW:
            return self._measure_window(cell)
        at_target = cell.length == self.plan.target
        blocks, curves = [], []
        with self._use(cell.row, cell.length):
            for row in self.windows:
                tokens = row[len(row) - cell.length - 1 :]
                first = 0 if at_target else cell.length - self.scored
                losses = compute_scores_of_text(self.loaded.model, tokens, first).losses
                blocks.append(_average_blocks(losses[-self.scored :]))
                curves.append(losses)
                self._advance(cell.length, cell.name)
        curve = {"by_position": _average_intervals(torch.stack(curves))} if at_target else {}
        return {"blocks": blocks, **curve}

    def _measure_window(self, cell: EvaluationCell) -> dict[str, Any]:
        """Losses in a sliding window of the trained length, the same at every longer length."""
        blocks = []
        with self._use(PUBLISHED, self.trained):
            for row in self.windows:
                first = len(row) - 1 - self.scored
                losses = compute_window_losses(self.loaded.model, row, first, self.trained)
                blocks.append(_average_blocks(losses))
                self._advance(cell.cost // len(self.windows), cell.name)
        return {"blocks": blocks}

    def _measure_answers(self, cell: EvaluationCell, form: str) -> list[float]:
        """Share of right answers at each depth."""
        window = self.trained if cell.row == SLIDING_WINDOW else None
        read = cell.cost // (self.test.texts * len(self.test.depths))
        shares = []
        with self._use(PUBLISHED if window else cell.row, window or cell.length):
            for depth in self.test.depths:
                found = []
                for text in build_texts(self.loaded, form, cell.length, depth, self.test):
                    found.append(score_text(self.loaded, text, window))
                    self._advance(read, cell.name)
                shares.append(sum(found) / len(found))
        return shares

    def _find_reasons(self, cells: Iterable[EvaluationCell]) -> dict[str, str]:
        """Forms that are not measured at longer lengths, and why."""
        reasons: dict[str, str] = {}
        for cell in cells:
            assert cell.form is not None
            try:
                self._measure_all([cell])
            except ValueError as error:
                if not str(error).startswith(f"a {cell.form} text"):
                    raise
                reasons[cell.form] = str(error)
                continue
            own = self.results.get(cell.name)
            share = 1.0 if own is None else sum(own) / len(own)
            if share < _LEAST_RETRIEVAL:
                reasons[cell.form] = (
                    f"the model as published gives {share:.0%} right answers at its trained length"
                    f" of {self.trained:,} tokens; less than {_LEAST_RETRIEVAL:.0%} says nothing"
                    " about longer texts."
                )
        return reasons

    def _use(self, row: str, length: int) -> Any:
        scaling: Scaling | None = self.methods[row].scaling
        return use_frequencies(self.modules, compute_frequencies(self.group, scaling, length))

    def _fits(self, cost: int) -> bool:
        """Whether a cell would end before the deadline, by the speed of those of this call."""
        if self.deadline is None or not self.measured:
            return True
        now = time.monotonic()
        return now + cost * (now - self.began) / self.measured <= self.deadline

    def _advance(self, tokens: int, label: str) -> None:
        self.done += tokens
        self.measured += tokens
        left = (time.monotonic() - self.began) * (self.total - self.done) / self.measured
        self.show(EvaluationProgress(self.done, self.total, label, left))


def _select_methods(plan: ExtensionPlan, names: tuple[str, ...] | None) -> list[MethodReport]:
    """The methods to try, the published rotation always among them."""
    if names is None:
        return [m for m in plan.methods if m.name not in _LEFT_OUT]
    missing = [name for name in names if plan.find_method(name) is None]
    if missing:
        why = plan.left_out.get(missing[0], "it does not fit this model")
        raise ValueError(f"method {quote(missing[0])} cannot be tried on this model: {why}.")
    return [m for m in plan.methods if m.name in (*names, PUBLISHED)]


def _average_blocks(losses: Tensor) -> list[float]:
    """Mean losses of runs of _BLOCK tokens, all of the same number of tokens."""
    size = min(_BLOCK, len(losses))
    whole = len(losses) // size * size
    means = losses[len(losses) - whole :].view(-1, size).double().mean(1)
    return [round(value, 6) for value in means.tolist()]


def _average_intervals(losses: Tensor) -> dict[str, list[float]]:
    """Mean losses [W, n] of intervals of positions, with their ends."""
    n = losses.shape[1]
    ends = [round(n * (i + 1) / _INTERVALS) for i in range(_INTERVALS)]
    edges = sorted({0, *ends})
    means = [float(losses[:, a:b].double().mean()) for a, b in itertools.pairwise(edges)]
    return {"end": [float(edge) for edge in edges[1:]], "loss": [round(m, 6) for m in means]}


def _show_nothing(moment: EvaluationProgress) -> None:
    pass
