"""Layouts of the weights."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.weights.config_file import find_layout

__all__: list[str] = []

_SMALL = {"hidden_size": 256, "num_attention_heads": 2}


@rule(
    "layout-disagrees",
    "error",
    what="Weights of q and k that were trained in another layout than the model rotates in.",
    why="Pairs of channels turn together: neighbours in Meta's code, half a head apart in Hugging"
    " Face's. Weights carried over without moving the rows of q and k load without complaint and"
    " write fluent nonsense.",
    remedy="whorl convert moves the rows, whorl detect shows the evidence by layer; or correct"
    " rope_interleave or rope_traditional, if the config is what is wrong.",
    seen=(
        "https://github.com/pytorch/torchtitan/issues/335",
        "https://github.com/huggingface/transformers/issues/25199",
    ),
    trigger=RuleExample(_SMALL, trained="interleaved"),
    near_miss=RuleExample(_SMALL, trained="half"),
)
def check_layout_disagrees(model: DiagnosedModel) -> Iterator[Problem]:
    weights = model.checkpoint
    said = find_layout(model.reading.groups) if model.reading is not None else None
    if weights.layout is not None and said is not None and said != weights.layout:
        yield Problem(
            "q and k",
            f"the weights show the {weights.layout} layout ({weights.confidence:.0%} sure), and"
            f" the config stands for {said}.",
        )


@rule(
    "layout-mixed",
    "error",
    what="Weights of which some have one layout and some the other.",
    why="A program rotates all layers, and q and k, in one layout. Weights that were converted in"
    " part, by a script that missed some layers or one of q and k, load without complaint, and what"
    " has the other layout computes nonsense. Every layer is looked at.",
    remedy="whorl detect shows the evidence by layer. Take the weights from the original again, or"
    " convert those that differ: whorl convert FOLDER OUT --to half, which stops here, prints the"
    " command that does so.",
    seen=("https://github.com/huggingface/transformers/pull/31788",),
    trigger=RuleExample(_SMALL, trained=("half", "interleaved")),
    near_miss=RuleExample(_SMALL, trained=("half", "half")),
)
def check_layout_mixed(model: DiagnosedModel) -> Iterator[Problem]:
    if model.checkpoint.layout_conflict:
        yield Problem(
            "q and k", f"the weights show different layouts: {model.checkpoint.layout_conflict}."
        )


@rule(
    "layout-unread",
    "warning",
    what="A layout that only mlx-lm reads from the config.",
    why="rope_traditional is a key of mlx-lm, and whorl convert writes it where a family has no"
    " key of its own. transformers, vLLM and llama.cpp's converter pass it by and pair channels as"
    " the family does: they load these weights without complaint and write fluent nonsense.",
    remedy="Nothing, for mlx-lm and whorl. For anything else move the rows back: whorl convert"
    " FOLDER OUT --to half, or --to interleaved where the family pairs neighbours.",
    seen=(
        "https://github.com/huggingface/transformers/issues/25199",
        "https://github.com/ml-explore/mlx-lm/blob/main/mlx_lm/models/llama.py",
    ),
    trigger=RuleExample({**_SMALL, "rope_traditional": True}),
    near_miss=RuleExample({**_SMALL, "rope_traditional": False}),
)
def check_layout_unread(model: DiagnosedModel) -> Iterator[Problem]:
    for where, reading in model.readings:
        for note in reading.notes:
            if note.id == "layout-unread":
                yield Problem(
                    f"{where}.rope_traditional" if where else "rope_traditional", note.text
                )
