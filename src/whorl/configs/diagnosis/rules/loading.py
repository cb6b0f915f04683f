"""Configs that transformers 5.22.2 refuses, because it checks types and sizes."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Edit, Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import format_value, read_whole
from whorl.configs.huggingface import classes

from ._vocabulary import KEYS_BY_TYPE, SIZE_KEYS

__all__ = ["LONGROPE_ONLY"]

#: Families that accept no scaling but longrope.
LONGROPE_ONLY = ("phi3", "phi4_multimodal", "phimoe")

_FACTORS = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}


@rule(
    "not-an-integer",
    "error",
    what="A size or a length is not written as an integer.",
    why="transformers 5 checks the type of every key. A config with a length of null, 131072.0 or"
    " 1e5 does not load; version 4 accepted it.",
    remedy="Write an integer, or leave the key out to use the default of the class.",
    seen=("huggingface/transformers/pull/45007", "sgl-project/sglang/issues/26674"),
    trigger={"max_position_embeddings": 131072.0},
    near_miss={"max_position_embeddings": 131072, "rope_theta": 10000.0},
)
def check_not_an_integer(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        for name, value in classes.find_wrong_types(part.keys, part.family, int):
            if name in SIZE_KEYS and isinstance(value, str):
                continue  # quoted-number reports it
            good = read_whole(value)
            yield Problem(
                part.path(name),
                f"{name} is {'null' if value is None else format_value(value)}; transformers'"
                f" {part.family} accepts an integer only.",
                edits=(Edit("set", (*part.where, name), good),) if good else (),
            )


@rule(
    "not-a-boolean",
    "error",
    what="A switch is not written as true or false.",
    why="transformers 5 does not accept 1 for true: such a config does not load; version 4"
    " accepted it. The first configs of Llama 4 have attn_temperature_tuning 4.",
    remedy="Write true or false.",
    seen=("huggingface/transformers/issues/37479", "vllm-project/vllm/pull/19997"),
    trigger={"model_type": "llama4_text", "head_dim": 128, "attn_temperature_tuning": 4},
    near_miss={"attn_temperature_tuning": True},
)
def check_not_a_boolean(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        for name, value in classes.find_wrong_types(part.keys, part.family, bool):
            words = {"true": True, "false": False}
            good = words.get(value.lower()) if isinstance(value, str) else bool(value)
            yield Problem(
                part.path(name),
                f"{name} is {format_value(value)}; transformers' {part.family} accepts true or"
                " false only.",
                edits=() if good is None else (Edit("set", (*part.where, name), good),),
            )


@rule(
    "layer-list-length",
    "error",
    what="A list with one value per layer has a different length than the number of layers.",
    why="transformers refuses a layer_types list whose length is not num_hidden_layers. If"
    " no_rope_layers is too short, it stops when it builds the first layer after the end of the"
    " list. Such lists remain when someone removes layers from a model or adds layers to it.",
    remedy="Shorten or extend the list together with num_hidden_layers.",
    seen=("huggingface/transformers/pull/46220",),
    trigger={"model_type": "qwen3", "head_dim": 128, "layer_types": ["full_attention"]},
    near_miss={"layer_types": ["full_attention"] * 2},
)
def check_layer_list_length(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        declared = classes.get_class_default(part.family, "num_hidden_layers")
        layers = part.keys.get("num_hidden_layers", declared)
        if not part.is_known_family or type(layers) is not int:
            continue
        for name in ("layer_types", "no_rope_layers"):
            given = part.keys.get(name)
            if not isinstance(given, (list, tuple)) or not given:
                continue
            short = len(given) < layers
            if short or (name == "layer_types" and len(given) != layers):
                yield Problem(
                    part.path(name),
                    f"{name} has {len(given)} values; the model has {layers} layers.",
                )


@rule(
    "heads-refused",
    "error",
    what="hidden_size is not a multiple of num_attention_heads, and the class refuses that.",
    why="Llama, Gemma and the classes derived from them check this when the config is created,"
    " whether there is a head_dim or not.",
    remedy="Correct hidden_size or num_attention_heads. If there is a head_dim and it matches the"
    " weights, the config is right, and only another version of transformers loads it.",
    seen=("huggingface/transformers/pull/46211", "huggingface/transformers/pull/47707"),
    trigger={"num_attention_heads": 33},
    near_miss={"model_type": "qwen3", "head_dim": 128},
)
def check_heads_refused(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        hidden, heads = (part.get_whole(k) for k in ("hidden_size", "num_attention_heads"))
        if part.family in classes.HEADS_DIVIDE and hidden and heads and hidden % heads:
            yield Problem(
                part.path("num_attention_heads"),
                f"{hidden} / {heads} = {hidden / heads:.4g}; transformers' {part.family} does not"
                " load.",
            )


@rule(
    "type-refused",
    "error",
    what="The class of the model refuses this scaling.",
    why="Phi-3, Phi-4-multimodal and Phi-3.5-MoE accept longrope and no other scaling.",
    remedy="Use longrope, with one short_factor and one long_factor for each pair.",
    seen=("huggingface/transformers/pull/31966", "sgl-project/sglang/issues/26674"),
    trigger={"model_type": "phi3", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    near_miss={
        "hidden_size": 3072,
        "original_max_position_embeddings": 2048,
        "rope_scaling": {"rope_type": "longrope", **_FACTORS},
    },
)
def check_type_refused(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        family, kind = rope.part.family, rope.rope_type
        if family in LONGROPE_ONLY and kind in KEYS_BY_TYPE and kind not in ("default", "longrope"):
            name = rope.type_key
            yield Problem(rope.path(name), f"{family} does not load with rope_type {kind}.")


@rule(
    "su-original",
    "error",
    what="The old type name su, while original_max_position_embeddings is outside the rope"
    " parameters.",
    why="transformers 5 copies original_max_position_embeddings into the parameters of longrope"
    " before it renames su to longrope. The first Phi-3 configs therefore stop with a KeyError.",
    remedy="Write longrope instead of su.",
    seen=(
        "huggingface/transformers/pull/42513",
        "huggingface/text-generation-inference/issues/2172",
    ),
    trigger={
        "model_type": "phi3",
        "hidden_size": 3072,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "su", **_FACTORS},
    },
    near_miss={"rope_scaling": {"type": "longrope", **_FACTORS}},
)
def check_su_original(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        name = rope.type_key
        inside = rope.get_number("original_max_position_embeddings")
        phi = rope.part.family in LONGROPE_ONLY[:2]
        if phi and rope.keys.get(name) == "su" and inside is None:
            yield Problem(
                rope.path(name),
                f"{name} is 'su', and original_max_position_embeddings is not in"
                f" {rope.path()}: {format_value(rope.part.family)} stops with a KeyError.",
                edits=(Edit("set", (*rope.where, name), "longrope"),),
            )
