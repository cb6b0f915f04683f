"""Loss along a stream for a run: its held-out text or a file of yours, and stream.json."""

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.lengths import parse_length
from whorl._support.words import quote

from . import corpus
from ._checks import check_count
from .config import RunConfig
from .decoding import load_decoder
from .encodings import format_title
from .integrity import read_checked
from .runs import Run
from .streams import PolicyLoss, Progress, StreamInterval, StreamLoss, measure_stream_loss
from .text import TextCodec

__all__ = ["read_stream", "stream_run"]

_TIMES = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s?[xX]")


def stream_run(
    folder: str | Path,
    *,
    length: int | str = "10x",
    window: int | None = None,
    sinks: int = 4,
    streams: int = 16,
    text: str | Path | None = None,
    progress: Progress | None = None,
) -> StreamLoss:
    """Losses of the run in ``folder`` along texts of ``length``, also written to its stream.json.

    Args:
        length: tokens of each text, or a multiple of the trained length, such as "10x".
        window, sinks: as for ``measure_stream_loss``.
        streams: texts at most; there are fewer if there is too little text for that many.
        text: a file to read instead of the text that was held out of the training.
    """
    run = Run(folder)
    config = run.load_config()
    check_count("streams", streams)
    count = _resolve_length(length, config.training.length)
    if count < (least := 2 * config.training.length):
        raise ValueError(
            f"length must be at least {least}, twice the trained length, because the loss past it"
            f" is the question; got {count}."
        )
    with run.lock():
        model, info = load_decoder(run)
        tokens, title = _cut_streams(run, config, streams, count + 1, text)
        found = measure_stream_loss(
            model,
            tokens,
            trained_length=config.training.length,
            window=window,
            sinks=sinks,
            unit=TextCodec(config.data).unit,
            progress=progress,
        )
        about = {"name": format_title(config.model.encoding), "text": title}
        run.write_stream({**found.to_dict(), **about}, info)
    return found


def read_stream(folder: str | Path) -> StreamLoss:
    """The losses in the stream.json of a run; ValueError if there are none of its weights."""
    run = Run(folder)
    run.load_config()
    found = run.read_stream()
    if found is None:
        raise ValueError(
            f"{str(folder)!r} has no losses along a stream of its last weights; measure them with"
            " whorl stream, or whorl.lab.stream_run, first."
        )
    policies = tuple(_read_policy(one) for one in found["policies"])
    known = {field.name: found[field.name] for field in fields(StreamLoss)}
    return StreamLoss(**{**known, "policies": policies})


def _read_policy(found: Mapping[str, Any]) -> PolicyLoss:
    difference = found["difference"]
    return PolicyLoss(
        name=found["name"],
        keys=found["keys"],
        by_position=tuple(StreamInterval(**one) for one in found["by_position"]),
        inside=StreamInterval(**found["inside"]),
        beyond=StreamInterval(**found["beyond"]),
        difference=None if difference is None else StreamInterval(**difference),
    )


def _resolve_length(length: int | str, trained: int) -> int:
    """Tokens that ``length`` names: a number, or a multiple of the trained length."""
    times = _TIMES.fullmatch(length.strip()) if isinstance(length, str) else None
    if times is not None:
        return round(float(times[1]) * trained)
    try:
        return parse_length(length)
    except ValueError:
        raise ValueError(
            "length must be a number of tokens, such as 4096 or 4k (k = 1024), or a multiple of the"
            f" trained length, such as 10x; got {quote(length)}."
        ) from None


def _cut_streams(
    run: Run, config: RunConfig, count: int, length: int, text: str | Path | None
) -> tuple[Tensor, str]:
    """Texts [B, length] that do not overlap, and where they are from."""
    if text is not None:
        return _cut_file(config, count, length, Path(text)), Path(text).name
    if config.data.task != "text":
        raise ValueError(
            f"{str(run.folder)!r} was trained on the task {quote(config.data.task)}, whose rows are"
            " no text; choose a run that was trained on text."
        )
    found = corpus.load_corpus(config.data.files, config.data.tokenizer)
    if read_checked(run.environment_path)["corpus"].get("sha256") != found.about["sha256"]:
        raise ValueError(
            f"{str(run.folder)!r} was trained on other text than its files hold now, so that none"
            " is known to be held out; pass text=FILE, text that it was not trained on."
        )
    return found.cut_windows(count, length, length), f"held-out text of {found.about['title']}"


def _cut_file(config: RunConfig, count: int, length: int, path: Path) -> Tensor:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"text: {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    tokens = torch.tensor(TextCodec(config.data).encode(data.decode("utf-8", "surrogateescape")))
    rows = min(count, len(tokens) // length)
    if not rows:
        raise ValueError(
            f"text: {str(path)!r} has {len(tokens)} tokens, and a stream needs {length}; give a"
            " longer file, or a smaller length."
        )
    return tokens[: rows * length].view(rows, length)
