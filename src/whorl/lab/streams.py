"""Loss along a stream: what a model forgets or confuses far past its trained length.

Held-out texts, ten times as long as those of the training, are read from their beginning to their
end with each policy of ``decoding``: all keys, the latest keys, sinks and the latest keys, and the
reference, for which the model reads the window before every token afresh. All policies are judged
on the same tokens: every n-th one, because reading a window for each takes time.

A cache with a window does not give what the recomputed window gives, unless the model has one
layer: keys in higher layers were made of tokens that the window has dropped since.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whorl._support.words import quote
from whorl.analysis.record import Record

from ._checks import check_count
from .decoding import CHUNK, CachePolicy, DecodingState, check_policy, follows_length
from .model import Model

__all__ = ["PolicyLoss", "StreamInterval", "StreamLoss", "measure_stream_loss"]

Progress = Callable[[int, int, str], None]

# Numbers of one tensor of logits, so that the memory does not depend on texts and vocabulary.
_LOGITS_PER_PASS = 2**23
# Tokens that the reference reads at most, unless ``every`` says otherwise.
_RECOMPUTED_TOKENS = 700_000
_MOST_INTERVALS = 40


@dataclass(frozen=True)
class StreamInterval(Record):
    """Mean loss of the positions start .. end - 1, in nats, and its 95 % interval over texts.

    count: tokens that were judged, in all texts. low, high: None for a single text.
    """

    start: int
    end: int
    count: int
    loss: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PolicyLoss(Record):
    """Losses with one policy.

    inside and beyond: positions up to and from ``StreamLoss.beyond`` on. difference: loss beyond,
    less that of the recomputed window, with an interval of the paired differences; None without.
    """

    name: str
    keys: str
    by_position: tuple[StreamInterval, ...]
    inside: StreamInterval
    beyond: StreamInterval
    difference: StreamInterval | None


@dataclass(frozen=True)
class StreamLoss(Record):
    """Losses of one model along several texts of ``length`` tokens.

    every: one token in so many was judged. beyond: the first position that is past the trained
    length and the window. left_out: policies that the model cannot use, each with the reason.
    """

    encoding: str
    trained_length: int
    length: int
    streams: int
    every: int
    window: int
    beyond: int
    unit: str
    policies: tuple[PolicyLoss, ...]
    left_out: dict[str, str]


def measure_stream_loss(
    model: Model,
    text: Tensor,
    *,
    trained_length: int,
    window: int | None = None,
    sinks: int = 4,
    every: int | None = None,
    unit: str = "tokens",
    progress: Progress | None = None,
) -> StreamLoss:
    """Loss by position along texts [B, N + 1], with each policy that the model can use.

    Args:
        trained_length: tokens of a sequence in training.
        window: keys that a token sees with every policy but "dense"; by default as many as in
            training. Sinks are a part of them.
        every: judge one token in so many; by default as many as can be recomputed in some seconds.
        progress: called with tokens that were judged, their number in all, and the policy.
    """
    window = trained_length if window is None else window
    _check_text(text, trained_length, window)
    rows, length = text.shape[0], text.shape[1] - 1
    edges = _choose_edges(length, trained_length)
    if every is None:  # each interval of positions has eight judged tokens or more
        every = -(-rows * length * window // _RECOMPUTED_TOKENS)
        every = max(1, min(every, edges[1] // 8))
    check_count("every", every)
    found = [CachePolicy("dense"), CachePolicy("window", window)]
    found += [CachePolicy("sinks", window, sinks), CachePolicy("recomputed", window)]
    policies, left_out = _select_policies(model, found, length)
    judged = torch.arange(0, length, every)
    losses = {}
    for n, policy in enumerate(policies):
        name, done = policy.kind, n * len(judged) * rows

        def show(count: int, name: str = name, done: int = done) -> None:
            if progress is not None:
                progress(done + count, len(policies) * len(judged) * rows, name)

        losses[policy] = compute_policy_losses(model, text, policy, judged, show)
    beyond = max(trained_length, window)
    reference = next((v for k, v in losses.items() if k.kind == "recomputed"), None)
    return StreamLoss(
        encoding=repr(model.encoding),
        trained_length=trained_length,
        length=length,
        streams=rows,
        every=every,
        window=window,
        beyond=beyond,
        unit=unit,
        policies=tuple(
            _summarize_policy(policy, values, judged, edges, beyond, reference)
            for policy, values in losses.items()
        ),
        left_out=left_out,
    )


@torch.no_grad()
def compute_policy_losses(
    model: Model,
    text: Tensor,
    policy: CachePolicy,
    judged: Tensor,
    show: Callable[[int], None] = lambda count: None,
) -> Tensor:
    """Loss [B, M] of the token after each of the positions ``judged`` [M], ascending."""
    was_training = model.training
    model.eval()
    read = _read_windows if policy.kind == "recomputed" else _read_stream
    losses = torch.zeros(text.shape[0], len(judged), dtype=torch.float64)
    done = 0
    try:
        for part in read(model, text, policy, judged):
            targets = text[part.rows, judged[part.columns] + 1]
            flat = F.cross_entropy(
                part.logits.float().flatten(0, 1), targets.flatten(), reduction="none"
            )
            losses[part.rows, part.columns] = flat.view(targets.shape).double()
            done += targets.numel()
            show(done)
    finally:
        model.train(was_training)
    return losses


class _JudgedLogits(NamedTuple):
    """Logits [rows, columns, vocab] after some of the positions that are judged."""

    rows: slice
    columns: slice
    logits: Tensor


def _read_stream(
    model: Model, text: Tensor, policy: CachePolicy, judged: Tensor
) -> Iterator[_JudgedLogits]:
    """Read texts through a cache, part by part."""
    most = 1 if follows_length(model.encoding) else CHUNK
    for rows in _split_rows(len(text), most * model.vocab):
        state = DecodingState(model, policy)
        for part in state.split(text[rows, :-1], most):
            logits = model(part, state=state)
            first = state.length - part.shape[1]
            ends = torch.tensor([first, state.length])
            low, high = torch.searchsorted(judged, ends).tolist()
            if low < high:
                yield _JudgedLogits(rows, slice(low, high), logits[:, judged[low:high] - first])


def _read_windows(
    model: Model, text: Tensor, policy: CachePolicy, judged: Tensor
) -> Iterator[_JudgedLogits]:
    """Read the window that ends at each position, afresh.

    Positions in the first window have all earlier tokens in it, so that one call serves them.
    """
    window = policy.window or 0
    early = int((judged < window).sum())
    first = text[:, : min(window, text.shape[1] - 1)]
    for rows in _split_rows(len(text), first.shape[1] * model.vocab):
        if early:
            yield _JudgedLogits(rows, slice(0, early), model(first[rows])[:, judged[:early]])
    for column in range(early, len(judged)):
        end = int(judged[column]) + 1
        for rows in _split_rows(len(text), window * model.vocab):
            logits = model(text[rows, end - window : end])[:, -1:]
            yield _JudgedLogits(rows, slice(column, column + 1), logits)


def _split_rows(count: int, logits: int) -> Iterator[slice]:
    """Parts of ``count`` rows; logits: how many numbers a row has in one call."""
    size = max(1, _LOGITS_PER_PASS // logits)
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _select_policies(
    model: Model, policies: Sequence[CachePolicy], length: int
) -> tuple[list[CachePolicy], dict[str, str]]:
    """The policies that the model can use, and why it cannot use others; an encoder has none."""
    chosen: list[CachePolicy] = []
    left_out: dict[str, str] = {}
    for policy in policies:
        try:
            check_policy(model, policy, length)
        except ValueError as error:
            if model.config.kind == "encoder":
                raise
            left_out[policy.kind] = str(error)
        else:
            chosen.append(policy)
    return chosen, left_out


def _summarize_policy(
    policy: CachePolicy,
    losses: Tensor,
    judged: Tensor,
    edges: Sequence[int],
    beyond: int,
    reference: Tensor | None,
) -> PolicyLoss:
    last = edges[-1]
    difference = None
    if reference is not None and policy.kind != "recomputed":
        difference = _average(losses - reference, judged, beyond, last)
    return PolicyLoss(
        name=policy.kind,
        keys=policy.describe(),
        by_position=tuple(_average(losses, judged, a, b) for a, b in pairwise(edges)),
        inside=_average(losses, judged, 0, beyond),
        beyond=_average(losses, judged, beyond, last),
        difference=difference,
    )


def _average(losses: Tensor, judged: Tensor, start: int, end: int) -> StreamInterval:
    """Mean of the positions start .. end - 1 with its interval over texts."""
    from .compare.statistics import estimate

    part = losses[:, (judged >= start) & (judged < end)]
    found = estimate(part.mean(1).tolist())
    return StreamInterval(start, end, part.numel(), found.mean, found.low, found.high)


def _choose_edges(length: int, trained: int) -> list[int]:
    """Ends of the intervals of positions: every half of the trained length, or fewer."""
    step = max(1, trained // 2)
    step *= -(-length // (step * _MOST_INTERVALS))
    return [*range(0, length, step), length]


def _check_text(text: Any, trained_length: int, window: int) -> None:
    if not isinstance(text, Tensor) or text.dtype != torch.int64 or text.dim() != 2:
        came = f"{list(text.shape)} of {text.dtype}" if isinstance(text, Tensor) else quote(text)
        raise TypeError(f"text must be a tensor [B, N + 1] of int64; got {came}.")
    least = 2 * max(trained_length, window)
    if not len(text) or text.shape[1] <= least:
        raise ValueError(
            f"text must have more than {least} tokens, twice the trained length and the window,"
            f" because the loss past them is the question; got {list(text.shape)}."
        )
