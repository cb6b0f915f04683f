"""Where transformers computes something else than the config says.

``read_config`` reads a config both ways and notes the differences; the tests compare the second
reading with the modules of transformers. These two rules find what no rule about a single key
finds; ``engine.apply_rules`` leaves them out if another rule gives the reason.
"""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import ConfigPart
from whorl.configs.huggingface import defaults
from whorl.configs.inspection.frameworks.transformers import shorten_refusal

from ._examples import build_extended

__all__: list[str] = []


@rule(
    "transformers-refuses",
    "error",
    what="transformers does not build a model from this config.",
    why="The config is clear, and other software may run it, but the class of transformers"
    f" {defaults.get_version()} stops: a key that it needs is not where it looks for it, or it does"
    " not accept a parameter. This finding is left out if another error gives the reason.",
    remedy="Write the config in the form that the class of the model reads; the message says what"
    " is missing.",
    seen=("huggingface/transformers/pull/32182", "huggingface/transformers/pull/45887"),
    trigger={
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "yarn", "original_max_position_embeddings": 8192},
    },
    near_miss=build_extended(131072, 8192, factor=16.0),
)
def check_transformers_refuses(model: DiagnosedModel) -> Iterator[Problem]:
    for part, text in model.find_notes("transformers-refuses"):
        said = f"transformers {defaults.get_version()} refuses it: {shorten_refusal(text)}."
        yield Problem(_find_key(part), said)


@rule(
    "transformers-differs",
    "error",
    what="transformers rotates by other angles than the config says.",
    why="Each class reads some keys in some places only, and gives no message about keys that it"
    " ignores: a base beside nested parameters, a scaling in a flat dictionary, a share of the"
    " head. The model loads, and every token is rotated by wrong angles. This finding is left out"
    " if another rule gives the reason.",
    remedy="Write the parameters where the class reads them (docs/configs.md in whorl's source"
    ' explains each of these differences). read_config(parity="transformers") shows how'
    " transformers reads a config.",
    seen=("huggingface/transformers/issues/48392", "deepspeedai/DeepSpeed/pull/8345"),
    trigger={"model_type": "olmo3", "rope_theta": 1000000.0},
    near_miss={"rope_theta": 500000.0},
)
def check_transformers_differs(model: DiagnosedModel) -> Iterator[Problem]:
    for part, text in model.find_notes("transformers-differs"):
        yield Problem(_find_key(part), text.removesuffix(" parity='transformers' follows it."))


def _find_key(part: ConfigPart) -> str:
    """The path of the rope key that a difference is about; of the part itself if it has none."""
    keys = ("rope_scaling", "rope_parameters", "rope_theta")
    return next((part.path(key) for key in keys if part.keys.get(key)), part.path())
