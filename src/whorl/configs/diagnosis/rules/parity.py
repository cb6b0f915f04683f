"""What transformers makes of the whole config, beside what the config says.

``read_config`` reads a config both ways and notes where the two part; the tests compare the second
with the modules of transformers. These two rules catch what no rule about a single key knows of,
and keep quiet where one does (``engine.put``).
"""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.patient import Patient
from whorl.configs.huggingface import defaults
from whorl.configs.inspection.frameworks.transformers import shorten_refusal

__all__: list[str] = []


@rule(
    "transformers-refuses",
    "error",
    what="A config that transformers does not build a model from.",
    why="The config says what is meant, and other software may run it, but the class of"
    f" transformers {defaults.get_version()} stops: a key that it needs is not where it looks, or a"
    " parameter is one that it does not take. Where another error says why, this one is left out.",
    remedy="Write the config as the class of the model reads it; the message says what it lacks.",
    seen=(
        "https://github.com/huggingface/transformers/pull/32182",
        "https://github.com/huggingface/transformers/pull/45887",
    ),
    trigger=Case(
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 8192},
        }
    ),
    near_miss=Case(
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 16.0,
                "original_max_position_embeddings": 8192,
            },
        }
    ),
)
def transformers_refuses(patient: Patient) -> Iterator[Symptom]:
    for where, text in _noted(patient, "transformers-refuses"):
        yield Symptom(
            where, f"transformers {defaults.get_version()} refuses it: {shorten_refusal(text)}."
        )


@rule(
    "transformers-differs",
    "error",
    what="transformers rotates by other angles than the config says.",
    why="Its classes read some keys in some places only, each family in its own way, and say"
    " nothing about what they leave: a base beside nested parameters, a scaling in a flat"
    " dictionary, a share of the head. The model loads, and every token is turned wrongly. Where"
    " another rule says why, this one is left out.",
    remedy="Write the parameters where the class reads them (docs/configs.md in whorl's source"
    " lists what each of these differences is);"
    ' read_config(parity="transformers") shows what it makes of a config.',
    seen=(
        "https://github.com/huggingface/transformers/issues/48392",
        "https://github.com/deepspeedai/DeepSpeed/pull/8345",
    ),
    trigger=Case({"model_type": "olmo3", "rope_theta": 1000000.0}),
    near_miss=Case({"model_type": "olmo3", "rope_theta": 500000.0}),
)
def transformers_differs(patient: Patient) -> Iterator[Symptom]:
    for where, text in _noted(patient, "transformers-differs"):
        yield Symptom(where, text.removesuffix(" parity='transformers' follows it."))


def _noted(patient: Patient, id: str) -> Iterator[tuple[str, str]]:
    """The notes of an id, with the key that speaks of the rotation where they stand."""
    towers = {tower.path(): tower for tower in patient.towers}
    for where, reading in patient.readings:
        for note in reading.notes:
            if note.id != id:
                continue
            tower = towers.get(where)
            keys = ("rope_scaling", "rope_parameters", "rope_theta")
            own = [tower.path(key) for key in keys if tower is not None and tower.config.get(key)]
            yield (own[0] if own else where), note.text
