"""Sizes of a decoder with gated layers, as Llama and most models since have them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from whorl._support.words import quote
from whorl.configs import load, read_config
from whorl.configs.huggingface.sizes import NAMES, add_usual_names

__all__ = ["ModelSize", "read_size", "solve_size"]

_VOCABULARY = 32_000
_MOST = 1e15
_ROUND = 64
#: Keys of configs whose layers are not counted here.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")


@dataclass(frozen=True)
class ModelSize:
    """Sizes of a model, and what was assumed because nothing said it.

    windows: for each layer how many keys a query sees at most; None for all.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int  # channels between the matrices of an MLP, which are three
    vocabulary: int
    tied: bool = False
    windows: tuple[int | None, ...] = ()
    assumed: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "head_dim", "inner", "vocabulary"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= 1 << 32:
                raise ValueError(f"{name} must be an int from 1 to 2^32; got {quote(value)}.")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads must divide heads, {self.heads}, because each serves equally many;"
                f" got {self.kv_heads}."
            )
        if not self.windows:
            object.__setattr__(self, "windows", (None,) * self.layers)

    @property
    def layer_matrices(self) -> int:
        """Numbers in the matrices of one layer."""
        attention = 2 * self.width * self.head_dim * (self.heads + self.kv_heads)
        return attention + 3 * self.width * self.inner

    @property
    def layer_parameters(self) -> int:
        return self.layer_matrices + 2 * self.width

    @property
    def embeddings(self) -> int:
        return self.vocabulary * self.width * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All trained numbers but those of an encoding."""
        return self.layers * self.layer_parameters + self.embeddings + self.width

    def limit_windows(self, window: int | None) -> "ModelSize":
        """The same model, whose queries see at most so many keys in every layer."""
        if window is None:
            return self
        if type(window) is not int or window < 1:
            raise ValueError(f"window must be a positive int, or None; got {quote(window)}.")
        return replace(self, windows=tuple(min(window, w or window) for w in self.windows))

    def to_dict(self) -> dict[str, Any]:
        found = {**asdict(self), "parameters": self.parameters}
        found["windows"] = list(self.windows) if any(self.windows) else None
        return {**found, "assumed": list(self.assumed)}


def solve_size(parameters: float, given: Mapping[str, int | None]) -> ModelSize:
    """Sizes that have about so many parameters: ``given``, and usual ones for the rest.

    Usual are 128 times as much width as layers, heads of 128 channels (64 below a width of 1024),
    as many key heads, 32,000 tokens in the vocabulary, and MLPs that make up the number.
    """
    known = {name: value for name, value in given.items() if value is not None}
    _check_parameters(parameters)
    vocabulary = known.get("vocabulary", _VOCABULARY)
    if (width := known.get("width")) is None:
        width = _solve_width(parameters, vocabulary, known.get("layers"))
    size = _build_size(width, known, round(8 * width / 3))
    if "layers" not in known:
        layers = max(1, round((parameters - size.embeddings - width) / size.layer_parameters))
        size = replace(size, layers=layers, windows=())
    inner = _solve_inner(size, parameters)
    if inner < 1:
        least = size.parameters - 3 * size.layers * width * size.inner
        raise ValueError(
            f"parameters must be more than {least:,}"
            f" for {size.layers} layers of width {width} and a vocabulary of {vocabulary:,}; got"
            f" {parameters:,.0f}. Pass fewer layers, a smaller width or vocabulary."
        )
    assumed = [name for name in ("layers", "width", "heads", "vocabulary") if name not in known]
    return replace(size, inner=inner, assumed=(*assumed, "inner"))


def read_size(config: Any, given: Mapping[str, int | None], parameters: float | None) -> ModelSize:
    """The sizes that a config says; ``given`` come before them."""
    found = read_config(config)
    data = load(config).data if found.part is None else found.part.keys
    keys = add_usual_names(dict(data), NAMES)
    if found.kind not in ("transformers", "mlx"):
        raise ValueError(
            "config must be a config.json of transformers or mlx-lm to plan from; got one of"
            f" {found.kind}. Pass parameters, layers, width, heads and vocabulary instead."
        )
    if experts := [key for key in (*_EXPERTS, "kv_lora_rank") if keys.get(key)]:
        raise ValueError(
            "config must be of a dense model with one key and one value for each key head, because"
            f" others have other memory; got one with {experts[0]}. Plan a dense model by"
            " parameters."
        )
    names = {"layers": "num_hidden_layers", "width": "hidden_size", "inner": "intermediate_size"}
    names |= {"heads": "num_attention_heads", "kv_heads": "num_key_value_heads"}
    names |= {"head_dim": "head_dim", "vocabulary": "vocab_size"}
    known: dict[str, Any] = {name: keys.get(key) for name, key in names.items()}
    known |= {name: value for name, value in given.items() if value is not None}
    for name in ("layers", "width", "heads"):
        if known[name] is None:
            raise ValueError(f"{name} must be given, because the config has no {names[name]}.")
    missing = [name for name in ("inner", "vocabulary") if known[name] is None]
    size = _build_size(
        known["width"], {n: v for n, v in known.items() if v}, round(8 * known["width"] / 3)
    )
    windows: list[int | None] = [None] * size.layers
    for group in found.groups:
        for layer in group.layers:
            if layer < size.layers:
                windows[layer] = group.window
    size = replace(size, tied=bool(keys.get("tie_word_embeddings")), windows=tuple(windows))
    if parameters is not None:
        _check_parameters(parameters)
        if "inner" not in missing or (inner := _solve_inner(size, parameters)) < 1:
            raise ValueError(
                "parameters must be left out with a config that says intermediate_size, or is"
                f" larger; got {parameters:,.0f} for {size.parameters:,}."
            )
        size, missing = (
            replace(size, inner=inner),
            ["vocabulary"] if "vocabulary" in missing else [],
        )
    return replace(size, assumed=tuple(missing))


def _check_parameters(parameters: Any) -> None:
    number = isinstance(parameters, int | float) and not isinstance(parameters, bool)
    if not number or not 1e4 <= parameters <= _MOST:
        raise ValueError(
            f"parameters must be a number from 1e4 to 1e15, such as 7e9; got {quote(parameters)}."
        )


def _build_size(width: int, known: Mapping[str, Any], inner: int) -> ModelSize:
    """A size with one layer, unless it is known how many."""
    head_dim = known.get("head_dim")
    heads = known.get("heads") or max(1, width // (head_dim or (128 if width >= 1024 else 64)))
    if head_dim is None and isinstance(heads, int) and heads > 0:
        head_dim = max(1, width // heads)
    return ModelSize(
        layers=known.get("layers", 1),
        width=width,
        heads=heads,
        kv_heads=known.get("kv_heads", heads),
        head_dim=head_dim,  # type: ignore[arg-type]  # ModelSize refuses what is no int
        inner=known.get("inner", inner),
        vocabulary=known.get("vocabulary", _VOCABULARY),
    )


def _solve_width(parameters: float, vocabulary: int, layers: int | None) -> int:
    """The multiple of 64 whose layers, 12 width^2 each, come nearest to width / 128 of them."""
    best, nearest = 64, math.inf
    for width in (*range(64, 4096, 64), *range(4096, 1 << 16, 256)):
        count = (parameters - 2 * vocabulary * width) / (12 * width**2)
        wanted = width / 128 if layers is None else layers
        if count > 0 and (apart := abs(math.log(count / wanted))) < nearest:
            best, nearest = width, apart
    return best


def _solve_inner(size: ModelSize, parameters: float) -> int:
    """Channels of the MLPs that bring the model to so many parameters; many are a round number."""
    without = size.parameters - 3 * size.layers * size.width * size.inner
    inner = round((parameters - without) / (3 * size.layers * size.width))
    return inner if inner < 10 * _ROUND else _ROUND * round(inner / _ROUND)
