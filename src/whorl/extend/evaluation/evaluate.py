"""``evaluate_methods``: every method of extension on the weights of a model, by length.

A cell is one method at one length. Its result is the mean loss of each run of _BLOCK scored tokens,
so that two methods can be compared on the same tokens; at the target also the loss by position.
"""

import hashlib
import itertools
import time
from collections.abc import Callable, Sequence
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

from .loading import LoadedModel
from .losses import compute_scores_of_text, compute_window_losses
from .passkeys import measure_passkeys
from .results import ResultFile
from .rotations import compute_frequencies, find_rotary_modules, select_group, use_frequencies
from .settings import PUBLISHED, SLIDING_WINDOW, ExtensionTest, choose_lengths, cut_windows

__all__ = ["EvaluationProgress", "evaluate_methods"]

_BLOCK = 32
_INTERVALS = 32  # of positions at the target
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
    progress: ShowProgress | None = None,
    more: Sequence[MethodReport] = (),
) -> dict[str, Any]:
    """Losses of a model with each method at every length up to the target, as plain values.

    Args:
        text: held-out text, at least as long as the target; its name is not kept.
        to, trained: as in ``whorl.extend.plan_extension``.
        folder: where results.json is kept and continued; None keeps nothing.
        force: measure again if the folder has results of other settings.
        more: methods beside those of the config, such as what a search found.

    Raises:
        ValueError: the model has no rotation that can be changed, or the text is too short.
    """
    test = test or ExtensionTest()
    plan = plan_extension(loaded.config, to=to, trained=trained)
    return _Evaluation(loaded, text, plan, test, folder, force, progress, more).run()


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
        progress: ShowProgress | None,
        more: Sequence[MethodReport] = (),
    ) -> None:
        self.loaded, self.plan, self.test = loaded, plan, test
        self.group = select_group(read_config(loaded.config))
        pairs = len(compute_frequencies(self.group, None, plan.trained.tokens).inv_freq)
        self.modules = find_rotary_modules(loaded.model, pairs)
        tokens = loaded.encode(text)
        self.windows = cut_windows(tokens, loaded.first_tokens, plan.target, test.windows)
        self.lengths = choose_lengths(plan.trained.tokens, plan.target)
        self.scored = min(test.scored, self.lengths[0])
        self.methods = [*_select_methods(plan, test.methods), *more]
        settings = {
            **test.to_dict(),
            "model": loaded.name,
            "weights": loaded.digest,
            "tokens": hashlib.blake2b(repr(tokens).encode(), digest_size=16).hexdigest(),
            "trained": plan.trained.tokens,
            "target": plan.target,
            "scalings": {
                each.name: None if each.scaling is None else each.scaling.to_dict()
                for each in self.methods
            },
        }
        self.results = ResultFile(None if folder is None else Path(folder), settings, force=force)
        self.show = progress or _show_nothing
        self.done, self.began = 0, time.monotonic()
        self.resumed = 0

    def run(self) -> dict[str, Any]:
        """All cells, then the document."""
        cells = [(each, length) for length in self.lengths for each in self.methods]
        beyond = self.test.passkeys * len(self.test.depths)
        self.total = sum(length for _, length in cells) * (len(self.windows) + beyond)
        self.total += self._count_window_tokens()
        for method, length in cells:
            self._measure(f"{method.name} {length}", method, length)
        self._measure_window()
        retrieval = self._measure_retrieval(cells) if self.test.passkeys else None
        document = self._build_document(retrieval)
        self.results.write(document=document)
        return document

    def _measure(self, cell: str, method: MethodReport, length: int) -> None:
        cost = length * len(self.windows)
        if self._skip(cell, cost):
            return
        at_target = length == self.plan.target
        blocks, curves = [], []
        with self._use(method.scaling, length):
            for row in self.windows:
                tokens = row[len(row) - length - 1 :]
                first = 0 if at_target else length - self.scored
                losses = compute_scores_of_text(self.loaded.model, tokens, first).losses
                blocks.append(_average_blocks(losses[-self.scored :]))
                curves.append(losses)
                self._advance(length, cell)
        found: dict[str, Any] = {"blocks": blocks}
        if at_target:
            found["by_position"] = _average_intervals(torch.stack(curves))
        self.results.add(cell, found)

    def _measure_window(self) -> None:
        """Losses in a sliding window of the trained length, the same at every longer length."""
        if self._skip(SLIDING_WINDOW, self._count_window_tokens()):
            return
        window, blocks = self.plan.trained.tokens, []
        with self._use(None, window):
            for row in self.windows:
                first = len(row) - 1 - self.scored
                losses = compute_window_losses(self.loaded.model, row, first, window)
                blocks.append(_average_blocks(losses))
                self._advance(4 * window, SLIDING_WINDOW)
        self.results.add(SLIDING_WINDOW, {"blocks": blocks})

    def _measure_retrieval(self, cells: Sequence[tuple[MethodReport, int]]) -> dict[str, Any]:
        """Shares of right answers by method and length, or why there are none."""
        trained, test = self.plan.trained.tokens, self.test
        ordered = sorted(cells, key=lambda cell: (cell[0].name, cell[1]) != (PUBLISHED, trained))
        shares: dict[str, dict[str, list[float]]] = {}
        for method, length in ordered:
            cell = f"passkey {method.name} {length}"
            cost = length * test.passkeys * len(test.depths)
            if not self._skip(cell, cost):
                with self._use(method.scaling, length):
                    found = measure_passkeys(self.loaded, length, test.depths, test.passkeys)
                self._advance(cost, cell)
                self.results.add(cell, found)
            shares.setdefault(method.name, {})[str(length)] = self.results.get(cell) or []
            own = shares.get(PUBLISHED, {}).get(str(trained), [1.0])
            if sum(own) / len(own) < _LEAST_RETRIEVAL:
                return {
                    "why": f"the model as published gives {sum(own) / len(own):.0%} right answers"
                    f" at its trained length of {trained:,} tokens; less than"
                    f" {_LEAST_RETRIEVAL:.0%} says nothing about longer texts."
                }
        return {"depths": list(test.depths), "texts": test.passkeys, "shares": shares}

    def _use(self, scaling: Scaling | None, length: int) -> Any:
        return use_frequencies(self.modules, compute_frequencies(self.group, scaling, length))

    def _count_window_tokens(self) -> int:
        return 4 * self.plan.trained.tokens * len(self.windows)

    def _skip(self, cell: str, cost: int) -> bool:
        """Whether a cell is there already, which then counts as done."""
        if self.results.get(cell) is None:
            return False
        self.done += cost
        self.resumed += cost
        return True

    def _advance(self, tokens: int, label: str) -> None:
        self.done += tokens
        spent, read = time.monotonic() - self.began, self.done - self.resumed
        left = spent * (self.total - self.done) / max(1, read)
        self.show(EvaluationProgress(self.done, self.total, label, left))

    def _build_document(self, retrieval: dict[str, Any] | None) -> dict[str, Any]:
        rows = []
        for method in self.methods:
            cells = {str(n): self.results.get(f"{method.name} {n}") for n in self.lengths}
            rows.append(_build_row(method, cells))
        window = self.results.get(SLIDING_WINDOW)
        assert window is not None
        longer = [n for n in self.lengths if n > self.plan.trained.tokens]
        inside = rows[[m.name for m in self.methods].index(PUBLISHED)]["by_length"]
        rows.append(
            {
                "name": SLIDING_WINDOW,
                "title": f"the last {self.plan.trained.tokens:,} tokens only",
                "run_by": [],
                "by_length": {
                    **{n: cell for n, cell in inside.items() if int(n) not in longer},
                    **{str(n): _summarize_blocks(window["blocks"]) for n in longer},
                },
                "by_position": None,
            }
        )
        return {
            "model": self.loaded.name,
            "trained": self.plan.trained.tokens,
            "target": self.plan.target,
            "lengths": self.lengths,
            "windows": len(self.windows),
            "scored": self.scored,
            "rows": rows,
            "retrieval": retrieval,
        }


def _select_methods(plan: ExtensionPlan, names: tuple[str, ...] | None) -> list[MethodReport]:
    """The methods to try, the published rotation always among them."""
    if names is None:
        return [m for m in plan.methods if m.run_by or m.name == PUBLISHED]
    missing = [name for name in names if plan.find_method(name) is None]
    if missing:
        why = plan.left_out.get(missing[0], "it does not fit this model")
        raise ValueError(f"method {quote(missing[0])} cannot be tried on this model: {why}.")
    return [m for m in plan.methods if m.name in (*names, PUBLISHED)]


def _build_row(method: MethodReport, cells: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": method.name,
        "title": method.title,
        "run_by": list(method.run_by),
        "by_length": {n: _summarize_blocks(cell["blocks"]) for n, cell in cells.items()},
        "by_position": next(
            (cell["by_position"] for cell in cells.values() if "by_position" in cell), None
        ),
    }


def _summarize_blocks(blocks: list[list[float]]) -> dict[str, Any]:
    flat = [value for row in blocks for value in row]
    return {"loss": sum(flat) / len(flat), "blocks": flat}


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
