"""Continue texts with a model of the lab, token by token, with or without a cache.

Without a cache the model reads the whole text again for every token: slow, and by definition
right. With the cache "dense" it reads each token once and gives the same tokens; only scalings
whose frequencies follow the length are an exception in models with several layers, because a cache
keeps what lower layers computed with earlier frequencies. The other caches bound the memory, and
what they drop is gone.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote

from ._checks import check_count
from .decoding import CacheKind, CachePolicy, DecodingState, check_policy, load_decoder
from .model import Model
from .runs import Run
from .text import TextCodec

__all__ = ["continue_text", "generate_tokens"]


def continue_text(
    folder: str | Path,
    prompt: str,
    steps: int,
    *,
    cache: CacheKind | None = "dense",
    window: int | None = None,
    sinks: int = 4,
    temperature: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """A prompt as the run in ``folder`` continues it, as text and as tokens.

    The options are those of ``generate_tokens``; window is the trained length by default.
    """
    run = Run(folder)
    config = run.load_config()
    if config.data.task != "text":
        raise ValueError(
            f"{str(folder)!r} was trained on the task {quote(config.data.task)}, whose rows are no"
            " text; choose a run that was trained on text."
        )
    codec, (model, _) = TextCodec(config.data), load_decoder(run)
    tokens = torch.tensor([codec.encode(prompt)], dtype=torch.int64)
    if cache not in (None, "dense") and window is None:
        window = config.training.length
    found = generate_tokens(
        model,
        tokens,
        steps,
        cache=cache,
        window=window,
        sinks=sinks,
        temperature=temperature,
        seed=seed,
        progress=progress,
    )
    return {
        "text": codec.decode(found[0].tolist()),
        "prompt": prompt,
        "tokens": found[0].tolist(),
        "prompt_tokens": tokens.shape[1],
        "new_tokens": found.shape[1] - tokens.shape[1],
        "trained_length": config.training.length,
        "unit": codec.unit,
        "cache": cache or "none",
        "window": window,
    }


@torch.no_grad()
def generate_tokens(
    model: Model,
    tokens: Tensor,
    steps: int,
    *,
    cache: CacheKind | None = None,
    window: int | None = None,
    sinks: int = 4,
    temperature: float = 0.0,
    seed: int = 0,
    stop: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Tokens [B, T] followed by ``steps`` more, [B, T + steps].

    Args:
        tokens: prompts of equal length, of one token at least.
        cache: None reads the whole text for every token, "dense" each token once; "window",
            "sinks" and "recomputed" see ``window`` keys (``decoding`` explains them).
        window: keys that a token sees, itself and the sinks included.
        sinks: how many of them are the first ones, for the cache "sinks".
        temperature: 0 takes the most likely token; above, tokens are drawn from the softmax of
            logits / temperature.
        seed: of the drawing; the same seed gives the same tokens.
        stop: a row that has this token ends with it, and is filled with it; when all rows have
            ended, the result has fewer tokens.
        progress: called with the number of new tokens, and ``steps``.

    >>> from whorl.lab import ModelConfig
    >>> model = Model(ModelConfig(encoding="alibi"), vocab=256, longest=64)
    >>> prompt = torch.tensor([[5, 6, 7]])
    >>> plain = model.generate(prompt, 20)
    >>> plain.shape, torch.equal(model.generate(prompt, 20, cache="dense"), plain)
    (torch.Size([1, 23]), True)
    """
    _check_arguments(model, tokens, steps, temperature, seed, stop)
    policy = None if cache is None else CachePolicy(cache, window, sinks)
    if policy is None and window is not None:
        raise ValueError(
            f"window must be None without a cache, which reads all tokens; got {quote(window)}."
            " Leave it out, or pass cache=."
        )
    check_policy(model, policy, tokens.shape[1] + steps - 1)  # the last one is not read
    was_training = model.training
    model.eval()
    predict = _make_predictor(model, policy)
    source = torch.Generator(tokens.device).manual_seed(seed)
    text, ended = tokens, torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    try:
        for step in range(steps):
            new = _choose_tokens(predict(text), temperature, source)
            if stop is not None:
                new = new.masked_fill(ended, stop)
                ended |= new == stop
            text = torch.cat((text, new.unsqueeze(1)), 1)
            if progress is not None:
                progress(step + 1, steps)
            if stop is not None and bool(ended.all()):
                break
    finally:
        model.train(was_training)
    return text


def _make_predictor(model: Model, policy: CachePolicy | None) -> Callable[[Tensor], Tensor]:
    """A function of a text [B, T], longer at every call, that gives logits [B, vocab] of the next.

    With a cache it reads only the tokens that it has not read yet.
    """
    if policy is None or policy.kind == "recomputed":
        last = None if policy is None else policy.window
        return lambda text: _read_last(model, text if last is None else text[:, -last:])
    state = DecodingState(model, policy)

    def predict(text: Tensor) -> Tensor:
        parts = state.split(text[:, state.length :])
        return [_read_last(model, part, state) for part in parts][-1]

    return predict


def _read_last(model: Model, text: Tensor, state: DecodingState | None = None) -> Tensor:
    """Logits [B, vocab] that follow the last token."""
    logits: Tensor = model(text, state=state)
    return logits[:, -1]


def _choose_tokens(logits: Tensor, temperature: float, source: torch.Generator) -> Tensor:
    """The next token of each row, [B]: the most likely one, or one that is drawn."""
    if temperature == 0:
        return logits.argmax(-1)
    shares = (logits.double() / temperature).softmax(-1)
    return torch.multinomial(shares, 1, generator=source).squeeze(1)


def _check_arguments(
    model: Model, tokens: Tensor, steps: int, temperature: float, seed: int, stop: int | None
) -> None:
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64 or tokens.dim() != 2:
        came = f"{list(tokens.shape)} of {tokens.dtype}" if isinstance(tokens, Tensor) else None
        raise TypeError(
            "tokens must be a tensor [B, T] of int64, a row for each prompt; got"
            f" {came or quote(tokens)}."
        )
    if not tokens.numel():
        raise ValueError(
            "tokens must not be empty, because a new token follows an earlier one; got"
            f" {list(tokens.shape)}."
        )
    low, high = (int(end) for end in torch.aminmax(tokens))
    if low < 0 or high >= model.vocab:
        raise ValueError(
            f"tokens must be from 0 to {model.vocab - 1}, the vocabulary of the model; got"
            f" {low if low < 0 else high}."
        )
    check_count("steps", steps)
    check_count("seed", seed, least=0)
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if not number or not 0 <= temperature < math.inf:
        raise ValueError(
            "temperature must be 0, for the most likely token, or a number above it; got"
            f" {quote(temperature)}."
        )
    if stop is not None and (type(stop) is not int or not 0 <= stop < model.vocab):
        raise ValueError(
            f"stop must be a token from 0 to {model.vocab - 1}, or None; got {quote(stop)}."
        )
