"""One table of all encodings by what people choose them by, made from their cards and modules."""

import inspect

import torch

from .base import Encoding, get_classes

__all__ = ["SIZES", "make_sample", "render_markdown"]

#: Sizes of the model that parameters are counted for: those that an encoding asks for.
SIZES = {"num_heads": 8, "head_dim": 128, "dim": 1024, "max_length": 2048}


def make_sample(cls: type[Encoding]) -> Encoding:
    """An encoding with its defaults, at ``SIZES`` where it has none."""
    needed = [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    if unknown := [name for name in needed if name not in SIZES]:
        raise ValueError(
            f"{cls.__name__}: options {', '.join(unknown)} have neither a default nor a size in"
            " whorl.encodings.cards.SIZES; give them one."
        )
    with torch.device("meta"):  # only shapes are asked for
        return cls(**{name: SIZES[name] for name in needed})


def render_markdown(page: str = "{}.md") -> str:
    """The table as Markdown; ``page`` is where the page of an encoding is found, by its name."""
    lines = [
        "| encoding | acts on | formula | relative | longer than trained | linear attention | n-D"
        " | trained numbers | memory | compute | paper |",
        "| --- | --- | --- | :-: | :-: | :-: | :-: | ---: | --- | --- | --- |",
    ]
    for name, cls in sorted(get_classes().items()):
        if (card := cls.card) is None:
            continue
        made = make_sample(cls)
        count = sum(parameter.numel() for parameter in made.parameters())
        cells = (
            f"[`{name}`]({page.format(name)})",
            ", ".join(sorted(made.hooks)) or "nothing",
            f"`{card.formula}`" if card.formula != "-" else "-",
            _format_answer(card.relative),
            card.longer,
            card.linear_attention,
            _format_answer(card.many_axes),
            f"{count:,}" if count else "-",
            card.memory,
            card.compute,
            f"[{card.paper}]({card.url})",
        )
        escaped = [cell.replace("|", r"\|") for cell in cells]  # also in code, as GitHub reads it
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def _format_answer(holds: bool) -> str:
    return "yes" if holds else "-"
