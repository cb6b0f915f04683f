"""Parameters of YaRN, LongRoPE, Llama 3 and dynamic NTK that do not fit each other."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import format_value, read_number

from ._examples import build_yarn

__all__: list[str] = []


_LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}
_LONG = {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096}
_MSCALES = {"short_mscale": 1.25, "long_mscale": 1.25}


def _build_longrope(short: float, long: float, pairs: int = 64) -> dict[str, object]:
    lists = {"short_factor": [short] * pairs, "long_factor": [long] * pairs}
    return {"rope_type": "longrope", **lists}


@rule(
    "beta-order",
    "error",
    what="YaRN's beta_fast is smaller than beta_slow.",
    why="YaRN keeps pairs that make more than beta_fast rotations within the trained length, slows"
    " those that make fewer than beta_slow, and interpolates between the two along a ramp. In the"
    " wrong order the ramp is reversed: fast pairs are slowed and slow pairs are kept."
    " transformers runs such a config without a message.",
    remedy="beta_fast is the larger one, 32 by default; beta_slow is 1 by default. With two equal"
    " values, as in Kimi-K2, there is a step in place of the ramp.",
    seen=("pytorch/torchtitan/pull/3787",),
    trigger={"rope_scaling": build_yarn(beta_fast=1, beta_slow=32)},
    near_miss={"rope_scaling": build_yarn(beta_fast=1.0, beta_slow=1.0)},
)
def check_beta_order(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        fast = rope.get_number("beta_fast") or 32.0
        slow = rope.get_number("beta_slow") or 1.0
        if rope.rope_type == "yarn" and 0 < fast < slow:
            yield Problem(
                rope.path("beta_fast"),
                f"beta_fast is {format_value(fast)}, beta_slow is {format_value(slow)}:"
                " transformers runs it and slows the fast pairs instead of the slow ones.",
            )


@rule(
    "low-high-order",
    "error",
    what="Llama 3's low_freq_factor is larger than high_freq_factor.",
    why="Pairs whose wavelength is longer than original / low_freq_factor are slowed, pairs whose"
    " wavelength is shorter than original / high_freq_factor are kept, and the pairs between are"
    " interpolated, which divides by high - low. If the two are swapped, the interpolation is"
    " reversed. With two equal values, as in Llama 4 Scout, there are no pairs between.",
    remedy="Llama 3.1 has low_freq_factor 1 and high_freq_factor 4.",
    seen=("ml-explore/mlx-examples/pull/907",),
    trigger={"rope_scaling": {**_LLAMA3, "low_freq_factor": 4.0, "high_freq_factor": 1.0}},
    near_miss={"rope_scaling": {**_LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 1.0}},
)
def check_low_high_order(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.written_parameters:
        low, high = rope.get_number("low_freq_factor"), rope.get_number("high_freq_factor")
        if rope.rope_type == "llama3" and low is not None and high is not None and low > high:
            yield Problem(
                rope.path("low_freq_factor"),
                f"low_freq_factor is {format_value(low)}, high_freq_factor is"
                f" {format_value(high)}.",
            )


@rule(
    "factor-list-length",
    "error",
    what="A list of LongRoPE factors does not have one factor for each pair.",
    why="Each frequency is divided by its factor in the list, so a list of another length does not"
    " load. Software that ignores partial_rotary_factor expects the wrong length: Phi-4-mini has"
    " 48 factors, because 96 of its 128 channels rotate.",
    remedy="Give short_factor and long_factor one number for each rotated pair.",
    seen=("microsoft/Olive/issues/1873", "mlc-ai/relax/pull/337"),
    trigger={
        **_LONG,
        "model_type": "phi3",
        "partial_rotary_factor": 0.75,
        "rope_scaling": _build_longrope(1.0, 2.0, pairs=64),
    },
    near_miss={"rope_scaling": _build_longrope(1.0, 2.0, pairs=48)},
)
def check_factor_list_length(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        width = rope.rotated_channels
        if rope.rope_type != "longrope" or width is None or rope.part.reading is not None:
            continue  # it was read, so the lists fit
        for name in ("short_factor", "long_factor"):
            given = rope.keys.get(name)
            pairs = width // 2
            if isinstance(given, (list, tuple)) and len(given) != pairs:
                said = f"{name} has {len(given)} numbers; {2 * pairs} rotated channels are {pairs}"
                yield Problem(rope.path(name), f"{said} pairs.")


@rule(
    "factor-lists-swapped",
    "warning",
    what="LongRoPE slows short texts more than long ones.",
    why="long_factor makes wavelengths longer for texts beyond the trained length, so its numbers"
    " are the larger ones in every published model; short_factor is 1 or slightly more. If the two"
    " are swapped, short texts are rotated by angles of no training, and long texts are not"
    " extended.",
    remedy="Swap short_factor and long_factor.",
    seen=("lablup/mlxcel/issues/1358", "ggml-org/llama.cpp/issues/24823"),
    trigger={**_LONG, "rope_scaling": _build_longrope(8.0, 1.0)},
    near_miss={"rope_scaling": _build_longrope(1.0, 8.0)},
)
def check_factor_lists_swapped(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        if rope.rope_type != "longrope":
            continue
        short, long = (
            _sum_numbers(rope.keys.get(name)) for name in ("short_factor", "long_factor")
        )
        if short is not None and long is not None and short > long:
            yield Problem(
                rope.path("short_factor"),
                f"short_factor adds up to {format_value(short)}, long_factor to"
                f" {format_value(long)}.",
            )


def _sum_numbers(given: object) -> float | None:
    """The sum of a list of numbers; None for anything else."""
    found = [read_number(value) for value in given] if isinstance(given, (list, tuple)) else []
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None  # fsum overflows


@rule(
    "long-factor-unused",
    "warning",
    what="LongRoPE in a model whose class in transformers never uses the long factors.",
    why="The rotary module of Phi-3.5-MoE computes its frequencies again in each call, but does"
    " not pass the length on. It uses short_factor for every text; beyond the trained length only"
    " long_mscale has an effect. No change of the config can correct that.",
    remedy="For texts beyond the trained length use software that changes to the long factors,"
    " such as vLLM or llama.cpp, or correct the rotary module; the config is right. Shorter texts"
    " are not affected.",
    seen=("huggingface/transformers/pull/33363",),
    trigger={
        **_LONG,
        "model_type": "phimoe",
        "rope_scaling": {**_build_longrope(1.0, 8.0), **_MSCALES},
    },
    near_miss={"rope_scaling": {**_build_longrope(1.0, 1.0), **_MSCALES}},
)
def check_long_factor_unused(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        same = rope.keys.get("short_factor") == rope.keys.get("long_factor")
        if rope.part.family == "phimoe" and rope.rope_type == "longrope" and not same:
            yield Problem(
                rope.path("long_factor"),
                "transformers' phimoe uses short_factor for every text, also beyond"
                f" {format_value(rope.trained_length)} tokens.",
            )


@rule(
    "dynamic-cache",
    "warning",
    what="Dynamic NTK changes the frequencies while keys rotated by the old ones stay in the"
    " cache.",
    why="transformers computes the frequencies again as the text grows, for the longest row of the"
    " batch, and rotates new queries by them. Cached keys keep their old angles, so beyond the"
    " trained length the scores mix two encodings. vLLM uses one set of frequencies for all"
    " lengths instead.",
    remedy="Use yarn, whose frequencies are fixed; or whorl.KVCache, which rotates cached keys"
    " again; or run without a cache.",
    seen=("huggingface/transformers/issues/25104", "vllm-project/vllm/issues/5093"),
    trigger={"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
    near_miss={"use_cache": False},
)
def check_dynamic_cache(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        alpha = read_number(
            rope.keys.get("alpha")
        )  # Hunyuan: fixed frequencies under the same name
        cached = rope.part.keys.get("use_cache") is not False
        if rope.rope_type == "dynamic" and not alpha and cached and rope.get_number("factor") != 1:
            length = format_value(rope.part.context_length)
            yield Problem(
                rope.path("rope_type"),
                f"beyond {length} tokens the frequencies change with every token.",
            )


@rule(
    "longrope-switch",
    "note",
    what="LongRoPE changes its frequencies at the trained length.",
    why="When a text grows beyond that length during generation, all keys so far need other"
    " angles. transformers drops the cache at this point or mixes both; vLLM uses the long factors"
    " for every text if it is started with a longer maximum; llama.cpp chooses once.",
    remedy="Nothing in the config: find out what your software does. whorl.KVCache rotates cached"
    " keys again.",
    seen=(
        "vllm-project/vllm/issues/27414",
        "huggingface/transformers/pull/33129",
        "ggml-org/llama.cpp/issues/8995",
    ),
    trigger={**_LONG, "rope_scaling": _build_longrope(1.0, 8.0)},
    near_miss={"rope_scaling": _build_longrope(8.0, 8.0)},
)
def check_longrope_switch(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        same = rope.keys.get("short_factor") == rope.keys.get("long_factor")
        if rope.rope_type == "longrope" and not same and rope.trained_length is not None:
            yield Problem(
                rope.path("long_factor"),
                f"texts of more than {rope.trained_length} tokens use long_factor, others"
                " short_factor.",
            )
