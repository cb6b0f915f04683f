"""Configs that transformers 5.22.2 refuses: it checks types and sizes when a config is made."""

from collections.abc import Iterator, Mapping

from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.patient import Patient, number, shown, whole
from whorl.configs.huggingface import classes

from ._vocabulary import READ, SIZES

__all__ = ["LONGROPE_ONLY"]

#: Families that take no scaling but longrope.
LONGROPE_ONLY = ("phi3", "phi4_multimodal", "phimoe")

_LISTS = [1.0] * 48


@rule(
    "not-an-integer",
    "error",
    what="A size or a length that is not written as an integer.",
    why="transformers 5 checks the type of every key: a length of null, 131072.0 or 1e5 does not"
    " load, where version 4 took it.",
    remedy="Write an integer; leave the key out for the default of the class.",
    seen=(
        "https://github.com/huggingface/transformers/pull/45007",
        "https://github.com/sgl-project/sglang/issues/26674",
    ),
    trigger=Case({"max_position_embeddings": 131072.0}),
    near_miss=Case({"max_position_embeddings": 131072, "rope_theta": 10000.0}),
)
def not_an_integer(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        for name, value in classes.find_wrong_types(tower.config, tower.family, int):
            if name in SIZES and isinstance(value, str):
                continue  # quoted-number says it
            good = whole(value)
            yield Symptom(
                tower.path(name),
                f"{name} is {'null' if value is None else shown(value)}; transformers'"
                f" {tower.family} takes an integer only.",
                edits=(Edit("set", (*tower.where, name), good),) if good else (),
            )


@rule(
    "not-a-boolean",
    "error",
    what="A switch that is not written as true or false.",
    why="transformers 5 takes no 1 for true: such a config does not load, where version 4 took it."
    " The first configs of Llama 4 have attn_temperature_tuning 4.",
    remedy="Write true or false.",
    seen=(
        "https://github.com/huggingface/transformers/issues/37479",
        "https://github.com/vllm-project/vllm/pull/19997",
    ),
    trigger=Case({"model_type": "llama4_text", "head_dim": 128, "attn_temperature_tuning": 4}),
    near_miss=Case({"model_type": "llama4_text", "head_dim": 128, "attn_temperature_tuning": True}),
)
def not_a_boolean(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        for name, value in classes.find_wrong_types(tower.config, tower.family, bool):
            words = {"true": True, "false": False}
            good = words.get(value.lower()) if isinstance(value, str) else bool(value)
            yield Symptom(
                tower.path(name),
                f"{name} is {shown(value)}; transformers' {tower.family} takes true or false only.",
                edits=() if good is None else (Edit("set", (*tower.where, name), good),),
            )


@rule(
    "layer-list-length",
    "error",
    what="A list with a value for each layer that is not as long as there are layers.",
    why="transformers refuses layer_types of another length than num_hidden_layers; too short a"
    " no_rope_layers stops when the first layer past its end is built. Both are left over when"
    " layers are cut from a model or added to it.",
    remedy="Cut or lengthen the list together with num_hidden_layers.",
    seen=("https://github.com/huggingface/transformers/pull/46220",),
    trigger=Case({"model_type": "qwen3", "head_dim": 128, "layer_types": ["full_attention"]}),
    near_miss=Case({"model_type": "qwen3", "head_dim": 128, "layer_types": ["full_attention"] * 2}),
)
def layer_list_length(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        declared = classes.get_class_default(tower.family, "num_hidden_layers")
        layers = tower.config.get("num_hidden_layers", declared)
        if not tower.known_family or type(layers) is not int:
            continue
        for name in ("layer_types", "no_rope_layers"):
            given = tower.config.get(name)
            if not isinstance(given, (list, tuple)) or not given:
                continue
            short = len(given) < layers
            if short or (name == "layer_types" and len(given) != layers):
                yield Symptom(
                    tower.path(name), f"{name} has {len(given)} values for {layers} layers."
                )


@rule(
    "heads-refused",
    "error",
    what="hidden_size is no multiple of num_attention_heads, and the class insists.",
    why="Llama, Gemma and the classes made from them check it when the config is made, whether"
    " head_dim is written or not.",
    remedy="Correct hidden_size or num_attention_heads; with a head_dim that fits the weights the"
    " config is right, and only another version of transformers loads it.",
    seen=(
        "https://github.com/huggingface/transformers/pull/46211",
        "https://github.com/huggingface/transformers/pull/47707",
    ),
    trigger=Case({"num_attention_heads": 33}),
    near_miss=Case({"model_type": "qwen3", "num_attention_heads": 33, "head_dim": 128}),
)
def heads_refused(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        hidden, heads = (whole(tower.config.get(k)) for k in ("hidden_size", "num_attention_heads"))
        if tower.family in classes.HEADS_DIVIDE and hidden and heads and hidden % heads:
            yield Symptom(
                tower.path("num_attention_heads"),
                f"{hidden} / {heads} = {hidden / heads:.4g}; transformers' {tower.family} does not"
                " load.",
            )


@rule(
    "type-refused",
    "error",
    what="A scaling that the model's class refuses.",
    why="Phi-3, Phi-4-multimodal and Phi-3.5-MoE take longrope and nothing else.",
    remedy="Use longrope, with a short_factor and a long_factor for each pair.",
    seen=(
        "https://github.com/huggingface/transformers/pull/31966",
        "https://github.com/sgl-project/sglang/issues/26674",
    ),
    trigger=Case({"model_type": "phi3", "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    near_miss=Case(
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "original_max_position_embeddings": 2048,
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": _LISTS,
                "long_factor": _LISTS,
            },
        }
    ),
)
def type_refused(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        family, kind = block.tower.family, block.kind
        if family in LONGROPE_ONLY and kind in READ and kind not in ("default", "longrope"):
            name = "rope_type" if block.has("rope_type") else "type"
            yield Symptom(block.path(name), f"{family} does not load with rope_type {kind}.")


def _su(**more: object) -> Mapping[str, object]:
    return {
        "model_type": "phi3",
        "hidden_size": 3072,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"short_factor": _LISTS, "long_factor": [2.0] * 48, **more},
    }


@rule(
    "su-original",
    "error",
    what="The old name su, with the trained length outside the rope parameters.",
    why="transformers 5 copies original_max_position_embeddings into the parameters of longrope"
    " before it takes su for longrope, so that the first Phi-3 configs stop with a KeyError.",
    remedy="Write longrope for su.",
    seen=(
        "https://github.com/huggingface/transformers/pull/42513",
        "https://github.com/huggingface/text-generation-inference/issues/2172",
    ),
    trigger=Case(_su(type="su")),
    near_miss=Case(_su(type="longrope")),
)
def su_original(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        name = "rope_type" if block.has("rope_type") else "type"
        inside = number(block.keys.get("original_max_position_embeddings"))
        phi = block.tower.family in LONGROPE_ONLY[:2]
        if phi and block.keys.get(name) == "su" and inside is None:
            yield Symptom(
                block.path(name),
                f"{name} is 'su', and original_max_position_embeddings is not in"
                f" {block.path()}: KeyError when {shown(block.tower.family)} loads.",
                edits=(Edit("set", (*block.where, name), "longrope"),),
            )
