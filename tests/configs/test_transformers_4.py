"""Every rotary model type of transformers 4, read from a config in its words and compared with it.

The other tests compare with transformers 5. These run where version 4 is installed, as in
``scripts/matrix oldest``.
"""

import logging
import math
from typing import Any

import pytest

import whorl
from tests.peers import require_transformers
from whorl.configs import LayerGroup

from .census import ROTARY
from .own_code import Table, config_of, tables_of
from .test_huggingface_census import compared, group_of

require_transformers(4)
pytestmark = pytest.mark.filterwarnings("ignore")
logging.getLogger("transformers").setLevel(logging.ERROR)

BEGUN = {"factor": 4.0, "original_max_position_embeddings": 512}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **BEGUN}
WAYS: dict[str, dict[str, Any]] = {
    "base": {"rope_theta": 2e5},
    "linear": {"rope_theta": 2e5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "yarn": {"rope_theta": 2e5, "rope_scaling": {"rope_type": "yarn", **BEGUN}},
    "llama3": {"rope_scaling": LLAMA3},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
}
#: The module holds the frequencies of the full layers; that of the others is made by the model.
FULL_LAYERS = {"gemma3_text", "olmo3"}
#: Version 4 of these has no scaling, whatever the config says; version 5 has.
WITHOUT_SCALING = {"nemotron"}


def build(model_type: str, **options: Any) -> tuple[Any, list[Table]] | None:
    """A config and the tables of its module; None if this version has no such type, or stops."""
    try:
        config = config_of(model_type, **options)
        return config, tables_of(model_type, config)
    except Exception:  # whatever its code stops with
        return None


def read_group(model_type: str, config: Any, table: Table) -> LayerGroup:
    data = config.to_dict()
    data["model_type"] = data.get("model_type") or model_type
    label = "full_attention" if model_type in FULL_LAYERS else table.label
    found = group_of(model_type, whorl.read_config(data), label)
    assert found is not None
    return found


def test_every_type_rotates_as_its_own_code() -> None:
    count, wrong = 0, []
    for model_type in ROTARY:
        config, tables = build(model_type) or (None, [])
        for table in tables:
            group = read_group(model_type, config, table)
            assert group.rotation is not None
            rope = group.rotation.build(precision="float32")
            wrong += compared(model_type, config, table, rope)
            count += 1
    print(f"{count} tables of transformers 4")
    assert count >= 80
    assert wrong == []


@pytest.mark.parametrize("way", WAYS)
def test_frequencies_of_a_config_in_the_words_of_version_4(way: str) -> None:
    count, wrong = 0, []
    for model_type in ROTARY:
        config, tables = build(model_type, **WAYS[way]) or (None, [])
        for table in tables:
            rotation = read_group(model_type, config, table).rotation
            assert rotation is not None
            equal = table.equals(rotation.frequencies(), 1e-5)
            if equal != (model_type not in WITHOUT_SCALING or way in ("base", "dynamic")):
                wrong.append(f"{model_type}: {rotation}")
            count += 1
    print(f"{way}: {count} tables of transformers 4")
    assert count >= 60
    assert wrong == []


def test_the_comparison_can_fail() -> None:
    built = build("llama", **WAYS["yarn"])
    assert built is not None
    config, (table,) = built
    rotation = read_group("llama", config, table).rotation
    assert rotation is not None
    frequencies = rotation.frequencies()
    assert math.isclose(frequencies.attention_scale, 0.1 * math.log(4.0) + 1.0, rel_tol=1e-6)
    assert table.equals(frequencies, 1e-5)
    assert not table.equals(whorl.RoPE(128, base=2e5).frequencies(), 1e-5)
