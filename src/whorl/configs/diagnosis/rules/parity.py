"""What transformers makes of the whole config, beside what the config says.

``read_config`` reads a config both ways and notes where the two part; the tests compare the second
with the modules of transformers. These two rules catch what no rule about a single key knows of,
and keep quiet where one does (``engine.put``).
"""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.huggingface import defaults
from whorl.configs.inspection.frameworks.transformers import refusal

__all__: list[str] = []


@rule(
    "transformers-refuses",
    "error",
    what="A config that transformers does not build a model from.",
    why="The config says what is meant, and other software may run it, but the class of"
    f" transformers {defaults.version()} stops: a key that it needs is not where it looks, or a"
    " parameter is one that it does not take. Where another error says why, this one is left out.",
    remedy="Write the config as the class of the model reads it; the message says what it lacks.",
    seen=(
        "https://github.com/huggingface/transformers/pull/32182",
        "https://github.com/huggingface/transformers/pull/45887",
    ),
    trigger=RuleExample(
        {
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 8192},
        }
    ),
    near_miss=RuleExample(
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
def check_transformers_refuses(model: DiagnosedModel) -> Iterator[Problem]:
    for where, text in _find_notes(model, "transformers-refuses"):
        yield Problem(where, f"transformers {defaults.version()} refuses it: {refusal(text)}.")


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
    trigger=RuleExample({"model_type": "olmo3", "rope_theta": 1000000.0}),
    near_miss=RuleExample({"model_type": "olmo3", "rope_theta": 500000.0}),
)
def check_transformers_differs(model: DiagnosedModel) -> Iterator[Problem]:
    for where, text in _find_notes(model, "transformers-differs"):
        yield Problem(where, text.removesuffix(" parity='transformers' follows it."))


def _find_notes(model: DiagnosedModel, id: str) -> Iterator[tuple[str, str]]:
    """The notes of an id, with the key that speaks of the rotation where they stand."""
    parts = {part.path(): part for part in model.parts}
    for where, reading in model.readings:
        for note in reading.notes:
            if note.id != id:
                continue
            part = parts.get(where)
            keys = ("rope_scaling", "rope_parameters", "rope_theta")
            own = [part.path(key) for key in keys if part is not None and part.config.get(key)]
            yield (own[0] if own else where), note.text
