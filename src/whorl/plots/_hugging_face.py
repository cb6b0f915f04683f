"""Attention weights of a Hugging Face model in a folder, on some text."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from whorl._support.extras import import_extra
from whorl._support.words import quote
from whorl.analysis.record import check_int, check_memory
from whorl.configs.names import get_model_name, resolve_model

__all__ = ["compute_attention_weights"]


@torch.no_grad()
def compute_attention_weights(folder: str, length: int, text: str = "") -> dict[str, Any]:
    """Attention weights of each layer [1, H, T, T], and a name for the model and the text.

    text: a file, or "" for the source of Python's argparse. Without a tokenizer in the folder,
    tokens are random.
    """
    path = resolve_model(folder, "model")
    if not (path / "config.json").is_file():
        raise ValueError(
            f"model: {folder!r} must be a folder with config.json and the weights of a Hugging Face"
            " model; nothing is downloaded."
        )
    transformers = import_extra("transformers", by="chart 'attention'", extra="hf")
    check_int(length, "length", "chart 'attention'", 2)
    with _set_quiet_logging(transformers):
        model = transformers.AutoModel.from_pretrained(
            path, attn_implementation="eager", local_files_only=True
        ).eval()
    tokens, words = _read_tokens(
        transformers, str(path), length, text, int(model.config.vocab_size)
    )
    config, n = model.config, tokens.shape[1]
    check_memory(
        16 * config.num_hidden_layers * config.num_attention_heads * n * n, n, "chart 'attention'"
    )
    found = model(tokens, output_attentions=True).attentions
    weights = [w for w in found or () if w is not None and w.shape[-1] == w.shape[-2]]
    if not weights:
        raise ValueError(
            f"model: {folder!r} gives no attention weights; its architecture does not return them."
        )
    return {"weights": weights, "name": f"{get_model_name(path)}, {words}"}


@contextmanager
def _set_quiet_logging(transformers: Any) -> Iterator[None]:
    """Switch off progress bars and warnings of transformers, which do not matter here."""
    logs = transformers.utils.logging
    level, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        yield
    finally:
        logs.set_verbosity(level)
        if bars:
            logs.enable_progress_bar()


def _read_tokens(
    transformers: Any, folder: str, length: int, text: str, vocab: int
) -> tuple[torch.Tensor, str]:
    if not any(Path(folder).glob("tokenizer*")) and not text:
        source = torch.Generator().manual_seed(0)
        return torch.randint(vocab, (1, length), generator=source), "random tokens"
    if text:
        read, words = Path(text).read_text(encoding="utf-8"), Path(text).name
    else:
        import argparse

        read, words = inspect.getsource(argparse), "source of argparse"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    ids = tokenizer(read, truncation=True, max_length=length)["input_ids"][:length]
    if len(ids) < 2:
        raise ValueError(f"text: {quote(words)} must give two tokens at least; got {len(ids)}.")
    return torch.tensor([ids]), words
