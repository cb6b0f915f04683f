"""The numbers of each chart: its options are arguments here, and ``whorl.analysis`` does the rest.

Six charts can use the lab or the benchmarks; these are imported only then.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from whorl import analysis
from whorl._support.words import quote
from whorl.analysis.precision import POSITIONS
from whorl.analysis.record import Record
from whorl.analysis.sizes import make_for_sizes
from whorl.configs import ConfigError, read_config
from whorl.configs.names import resolve_config
from whorl.encodings import Encoding, RoPE, names
from whorl.testing.inputs import set_random_parameters

_DIM, _BASE, _CONTEXT = 128, 10_000.0, 4096
# Pairs that are drawn by default; narrow heads may have fewer.
_DEFAULT_PAIRS, _DEFAULT_CIRCLES = 16, (0, 4, 12, 24)
# Words of an error of RoPE.from_config, replaced by those of an option.
_LAYER_HINT = "pass layer= or layer_type=,"


def _add_rope_options(compute: Callable[..., Record]) -> Callable[..., Record]:
    """Options for the first argument of ``compute``, a RoPE: its sizes, or the config of a model.

    Config is a file, its folder, or a preset.
    """

    def compute_with_rope(
        dim: int = _DIM, base: float = _BASE, config: str = "", layer_type: str = "", **options: Any
    ) -> Record:
        return compute(_build_rope(dim, base, config, layer_type), **options)

    dim, base, config, layer_type, _ = inspect.signature(compute_with_rope).parameters.values()
    _, *others = inspect.signature(compute).parameters.values()
    listed = inspect.Signature([dim, base, *others, config, layer_type])
    compute_with_rope.__signature__ = listed  # type: ignore[attr-defined]
    return compute_with_rope


def _build_rope(dim: int, base: float, config: str, layer_type: str) -> RoPE:
    if not config:
        return RoPE(dim, base=base)
    if (dim, base) != (_DIM, _BASE):
        raise ValueError("option 'config' sets dim and base; leave those out.")
    try:
        return RoPE.from_config(_resolve_config(config), layer_type=layer_type or None)
    except ConfigError as error:
        raise ConfigError(str(error).replace(_LAYER_HINT, "set option 'layer_type' to")) from None


def _remove_scaling(rope: RoPE) -> RoPE | None:
    """The same encoding without its scaling, or None if it has none."""
    if rope.config.scaling is None:
        return None
    plain = dataclasses.replace(rope.config, scaling=None)
    return RoPE(**{f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)})


def _resolve_config(config: str) -> Any:
    return resolve_config(config, "option 'config'")


def _make_encodings(
    listed: tuple[str, ...], heads: int, dim: int, length: int
) -> dict[str, Encoding]:
    return {
        name: make_for_sizes(name, num_heads=heads, head_dim=dim, max_length=length)
        for name in listed
    }


@_add_rope_options
def compute_frequencies(rope: RoPE) -> Record:
    return analysis.frequencies(rope)


def compute_wavelengths(
    dim: int = _DIM,
    base: float = _BASE,
    context: int = 0,
    config: str = "",
    layer_type: str = "",
) -> Record:
    """Wavelengths against a context; 0 is the context of the model, as in ``whorl inspect``."""
    rope, window, trained = _build_rope(dim, base, config, layer_type), None, None
    if config:
        said = read_config(_resolve_config(config))
        trained = said.trained_context
        if not context:
            context = said.context or trained or 0
            windows = [one.window for one in said.groups if layer_type in ("", one.name)]
            window = None if None in windows else max(filter(None, windows), default=None)
    found = analysis.frequencies(rope, context=context or _CONTEXT, window=window)
    if (plain := _remove_scaling(rope)) is None:
        return found
    before = analysis.frequencies(plain, context=trained or found.context, window=window)
    return dataclasses.replace(found, unscaled=before)


@_add_rope_options
def compute_angles(
    rope: RoPE, positions: tuple[int, ...] = (0, 1, 4, 8), pairs: int = _DEFAULT_PAIRS
) -> Record:
    few = min(pairs, rope.config.width // 2) if pairs == _DEFAULT_PAIRS else pairs
    return analysis.angles(rope, positions, pairs=few)


@_add_rope_options
def compute_circle(
    rope: RoPE, pairs: tuple[int, ...] = _DEFAULT_CIRCLES, length: int = 32
) -> Record:
    few = pairs == _DEFAULT_CIRCLES and max(pairs) >= rope.config.width // 2
    return analysis.circle(rope, pairs=None if few else pairs, length=length)


def compute_similarity(
    encoding: str = "rope", dim: int = 128, heads: int = 8, length: int = 256, places: int = 64
) -> Record:
    made = make_for_sizes(encoding, num_heads=heads, head_dim=dim, max_length=length)
    return analysis.similarity(made, length, places=places)


@_add_rope_options
def compute_scores(rope: RoPE, length: int = 64, places: int = 64, seed: int = 0) -> Record:
    return analysis.inner_products(rope, length, places=places, seed=seed)


def compute_map(
    encoding: str = "rope", dim: int = 128, heads: int = 8, length: int = 256, method: str = "pca"
) -> Record:
    made = make_for_sizes(encoding, num_heads=heads, head_dim=dim, max_length=length)
    return analysis.position_map(made, length, method=method)  # type: ignore[arg-type]


def compute_decay(
    dim: int = _DIM,
    base: float = _BASE,
    length: int = 0,
    seed: int = 0,
    run: str = "",
    config: str = "",
    layer_type: str = "",
) -> Record:
    """Decay up to a distance; 0 is the context of the model."""
    if run and config:
        raise ValueError("chart 'decay': a run has its own RoPE; leave config out.")
    if not run:
        said = read_config(_resolve_config(config)) if config else None
        length = length or (said and (said.context or said.trained_context)) or _CONTEXT
        rope = _build_rope(dim, base, config, layer_type)
        found = analysis.decay(rope, length, seed=seed)
        if (plain := _remove_scaling(rope)) is None:
            return found
        return dataclasses.replace(found, unscaled=analysis.decay(plain, length, seed=seed))
    from whorl.lab.attention import collect_queries_and_keys, compute_attention, get_rope

    name, layers = compute_attention(run)
    q, k = collect_queries_and_keys(layers)
    rope = get_rope(layers)
    length = length or layers[0].q.shape[-2]
    return analysis.decay(rope, length, q=q, k=k, name=f"q, k of {name}", seed=seed)


def compute_bases(
    dim: int = 128,
    bases: tuple[float, ...] = (100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0),
    length: int = 4096,
) -> Record:
    return analysis.bases(dim, bases, length=length)


@_add_rope_options
def compute_aliasing(rope: RoPE, length: int = 65_536) -> Record:
    return analysis.aliasing(rope, length)


def compute_recoverability(
    dims: tuple[int, ...] = (16, 32, 64, 128),
    bases: tuple[float, ...] = (100.0, 10_000.0, 1_000_000.0),
    noises: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    length: int = 1024,
    distinct: int = 0,
    seed: int = 0,
) -> Record:
    """Recovered positions; with distinct, so many frequencies are repeated instead of all."""
    return analysis.recoverability(
        dims, bases, noises, (length,), distinct=distinct or None, seed=seed
    )


@_add_rope_options
def compute_gradients(rope: RoPE, length: int = 512, seed: int = 0) -> Record:
    return analysis.pair_gradients(rope, length, seed=seed)


def compute_scalings(
    dim: int = _DIM,
    base: float = _BASE,
    context: int = 0,
    factor: float = 0.0,
    config: str = "",
    layer_type: str = "",
) -> Record:
    """Scalings of a model; 0 is its trained context, and the factor to its context or 8."""
    rope = _build_rope(dim, base, config, layer_type)
    if rope.config.inv_freq is not None:
        raise ValueError(
            "chart 'scalings' starts from a base, but this config lists its frequencies one by one;"
            " set dim and base in place of config."
        )
    if config:
        said = read_config(_resolve_config(config))
        trained, longest = said.trained_context, said.context
        if trained and longest and longest > trained and not context:
            factor = factor or longest / trained
        context = context or trained or longest or 0
    return analysis.extensions(
        rope.config.width,
        base=rope.config.base,
        original_context=context or _CONTEXT,
        factor=factor or 8.0,
    )


def compute_attention_scale(
    dim: int = 128,
    context: int = 2048,
    factors: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0),
    spread: float = 1.5,
) -> Record:
    return analysis.attention_scale(dim, context=context, factors=factors, spread=spread)


def compute_precision(
    dim: int = _DIM,
    base: float = _BASE,
    positions: tuple[int, ...] = POSITIONS,
    peers: bool = False,
    config: str = "",
    layer_type: str = "",
) -> Record:
    others = {}
    if peers:
        if config or (dim, base) != (_DIM, _BASE):
            raise ValueError(
                "chart 'precision': peers are measured at dim=128 and base=10000; leave config, dim"
                " and base out."
            )
        from whorl.bench.rotation.accuracy import list_table_functions

        known = list_table_functions().items()
        others = {name: tables for name, tables in known if not name.startswith("whorl")}
    return analysis.precision(_build_rope(dim, base, config, layer_type), positions, others=others)


def compute_bias(
    encoding: str = "alibi", heads: int = 8, length: int = 128, future: bool = False
) -> Record:
    made = make_for_sizes(encoding, num_heads=heads, max_length=length)
    return analysis.bias_curves(made, length, future=future)


def compute_terms(
    encoding: str = "rope+alibi",
    dim: int = 64,
    heads: int = 4,
    length: int = 32,
    head: int = 0,
    seed: int = 0,
) -> Record:
    made = make_for_sizes(encoding, num_heads=heads, head_dim=dim, max_length=length)
    return analysis.term_maps(set_random_parameters(made), length, head=head, seed=seed)


def compute_permutation(
    encodings: tuple[str, ...] = (), dim: int = 32, heads: int = 4, length: int = 12
) -> Record:
    made = _make_encodings(encodings or tuple(names()), heads, dim, length)
    return analysis.permutations(
        {n: set_random_parameters(e) for n, e in made.items()}, length=length
    )


def compute_entropy(
    encodings: tuple[str, ...] = ("nope", "rope", "sinusoidal", "xpos", "kerple", "alibi"),
    dim: int = 64,
    heads: int = 8,
    length: int = 8192,
) -> Record:
    lengths = [64 * 2**n for n in range(40) if 64 * 2**n <= length] or [length]
    return analysis.entropy(_make_encodings(encodings, heads, dim, length), lengths)


def compute_attention(run: str = "", model: str = "", length: int = 0, text: str = "") -> Record:
    if bool(run) == bool(model):
        raise ValueError(
            "chart 'attention' shows a trained model: set run=FOLDER of whorl train, or"
            " model=FOLDER of a Hugging Face model, but not both."
        )
    if model:
        from ._hugging_face import compute_attention_weights

        return analysis.attended(**compute_attention_weights(model, length or 256, text))
    from whorl.lab.attention import compute_attention

    name, layers = compute_attention(run, length=length or None)
    return analysis.attended([layer.weights for layer in layers], name=name)


def compute_trained_frequencies(run: str = "") -> Record:
    _require_run(run, "trained-frequencies")
    from whorl.lab.history import read_frequencies

    return read_frequencies(run)


def compute_gradient_norms(run: str = "") -> Record:
    _require_run(run, "gradient-norms")
    from whorl.lab.history import read_gradient_norms

    return read_gradient_norms(run)


def _require_run(run: str, name: str) -> None:
    if not run:
        raise ValueError(f"chart {quote(name)} shows a training: set run=FOLDER of whorl train.")


def compute_stream(run: str = "") -> Record:
    if not run:
        raise ValueError(
            "chart 'stream' shows losses of a trained model: set run=FOLDER, after whorl stream"
            " FOLDER has measured them."
        )
    from whorl.lab.stream_runs import read_stream

    return read_stream(run)


def compute_properties(encodings: tuple[str, ...] = ()) -> Record:
    return analysis.properties(encodings or None, lengths=())
