"""All forms of one config read alike: whole, shortened, by its type alone, and as an object."""

from typing import Any

import pytest

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ModelPositions

from .census import ROTARY
from .own_code import GATES, config_of

pytestmark = needs_transformers_5

#: Types whose layers are fixed by their gate, or by lists of a fixed length.
FIXED = ("deepseek_v4", "granitemoehybrid", "zamba2")
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "decoder_num_hidden_layers")


def essence(found: ModelPositions) -> list[Any]:
    """All but the rope parameters, which repeat what a config spelled out."""
    groups = [{**group.to_dict(), "parameters": None} for group in found.groups]
    return [groups, found.context, found.trained_context, found.notes]


def named(data: dict[str, Any], model_type: str) -> dict[str, Any]:
    return {**data, "model_type": data.get("model_type") or model_type}


@pytest.mark.parametrize("layers", [None, 7, 12])
def test_whole_and_shortened_configs_read_alike(layers: int | None) -> None:
    for model_type in ROTARY:
        keys = config_of(model_type).to_dict()
        own = next((name for name in COUNTS if name in keys), None)
        if layers is not None and (model_type in FIXED or own is None):
            continue
        options = {} if layers is None or own is None else {own: layers}
        config = config_of(model_type, **options)
        whole = named(config.to_dict(), model_type)
        minimal = {"model_type": whole["model_type"], **GATES.get(model_type, {}), **options}
        expected = essence(whorl.read_config(whole))
        shortened = named(config.to_diff_dict(), model_type)
        assert essence(whorl.read_config(shortened)) == expected, model_type
        assert essence(whorl.read_config(minimal)) == expected, model_type
        given = config if whole == config.to_dict() else whole
        assert essence(whorl.read_config(given)) == expected, model_type
        types = getattr(config, "layer_types", None)
        if types is not None:
            found = whorl.read_config(minimal)
            mine = {layer: group.name for group in found.groups for layer in group.layers}
            assert [mine[layer] for layer in range(len(types))] == list(types), model_type
