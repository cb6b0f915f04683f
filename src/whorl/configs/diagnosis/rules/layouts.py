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
    what="The weights of q and k were trained in another layout than the one that the model"
    " rotates in.",
    why="Two channels rotate together as a pair: neighbours in Meta's code, half a head apart in"
    " Hugging Face's. Weights that were converted without moving the rows of q and k load without"
    " an error and produce fluent nonsense.",
    remedy="whorl convert moves the rows, and whorl detect shows the evidence for each layer. If"
    " the config is wrong, correct rope_interleave or rope_traditional.",
    seen=("pytorch/torchtitan/issues/335", "huggingface/transformers/issues/25199"),
    trigger=RuleExample(_SMALL, trained="interleaved"),
    near_miss=RuleExample(_SMALL, trained="half"),
)
def check_layout_disagrees(model: DiagnosedModel) -> Iterator[Problem]:
    weights = model.checkpoint
    said = find_layout(model.reading.groups) if model.reading is not None else None
    if weights.layout is not None and said is not None and said != weights.layout:
        yield Problem(
            "q and k",
            f"the weights have the {weights.layout} layout (confidence {weights.confidence:.0%}),"
            f" but the config means {said}.",
        )


@rule(
    "layout-mixed",
    "error",
    what="Some of the weights have one layout and some the other.",
    why="Software rotates all layers, and both q and k, in one layout. Weights that were converted"
    " only in part, by a script that missed some layers or one of q and k, load without an error,"
    " and those in the other layout compute nonsense. Every layer is checked.",
    remedy="whorl detect shows the evidence for each layer. Take the weights from the original"
    " again, or convert the ones that differ: whorl convert FOLDER OUT --to half stops here, and"
    " prints the command that does it.",
    seen=("huggingface/transformers/pull/31788",),
    trigger=RuleExample(_SMALL, trained=("half", "interleaved")),
    near_miss=RuleExample(_SMALL, trained=("half", "half")),
)
def check_layout_mixed(model: DiagnosedModel) -> Iterator[Problem]:
    if model.checkpoint.layout_conflict:
        yield Problem(
            "q and k", f"the weights have different layouts: {model.checkpoint.layout_conflict}."
        )


@rule(
    "layout-unread",
    "warning",
    what="The config states the layout with a key that only mlx-lm reads.",
    why="rope_traditional is a key of mlx-lm, and whorl convert writes it if a family has no such"
    " key itself. transformers, vLLM and llama.cpp's converter ignore it and pair channels as the"
    " family does: they load these weights without an error and produce fluent nonsense.",
    remedy="Nothing to do for mlx-lm and whorl. For other software move the rows back: whorl"
    " convert FOLDER OUT --to half, or --to interleaved if the family pairs neighbours.",
    seen=(
        "huggingface/transformers/issues/25199",
        "ml-explore/mlx-lm/blob/main/mlx_lm/models/llama.py",
    ),
    trigger={**_SMALL, "rope_traditional": True},
    near_miss={"rope_traditional": False},
)
def check_layout_unread(model: DiagnosedModel) -> Iterator[Problem]:
    for part, text in model.find_notes("layout-unread"):
        yield Problem(part.path("rope_traditional"), text)
