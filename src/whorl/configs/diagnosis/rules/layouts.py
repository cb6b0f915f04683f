"""Layouts of the weights."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.weights.config_file import read_stated_layout

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
    trigger=Case(_SMALL, trained="interleaved"),
    near_miss=Case(_SMALL, trained="half"),
)
def layout_disagrees(patient: Patient) -> Iterator[Symptom]:
    weights = patient.weights
    said = read_stated_layout(patient.data) if patient.reading is not None else None
    if weights.layout is not None and said is not None and said != weights.layout:
        yield Symptom(
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
    trigger=Case(_SMALL, trained=("half", "interleaved")),
    near_miss=Case(_SMALL, trained=("half", "half")),
)
def layout_mixed(patient: Patient) -> Iterator[Symptom]:
    if patient.weights.different:
        yield Symptom(
            "q and k", f"the weights show different layouts: {patient.weights.different}."
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
    trigger=Case({**_SMALL, "rope_traditional": True}),
    near_miss=Case({**_SMALL, "rope_traditional": False}),
)
def layout_unread(patient: Patient) -> Iterator[Symptom]:
    for where, reading in patient.readings:
        for note in reading.notes:
            if note.id == "layout-unread":
                yield Symptom(
                    f"{where}.rope_traditional" if where else "rope_traditional", note.text
                )
