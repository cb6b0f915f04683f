"""Every model type of transformers with one-dimensional rotary embeddings, read and compared.

Inverse frequencies, attention scale and rotated vectors of the reading against the model's own
module and its own function; from the whole config and from what differs from its defaults.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import LayerGroup, ModelPositions

from .census import ROTARY
from .own_code import Table, config_of, rotated, tables_of

pytestmark = needs_transformers_5

#: Before 128, where a float32 angle of the fastest pair is good to 1e-5.
POSITIONS = torch.tensor([[*range(13), 31, 64, 96]])
DOCS = Path(__file__).parents[2] / "docs"


def read(model_type: str, config: Any, form: str = "to_dict") -> ModelPositions:
    data = getattr(config, form)()
    if not data.get("model_type"):
        data["model_type"] = model_type
    return whorl.read_config(data)


def group_of(model_type: str, found: ModelPositions, label: str | None) -> LayerGroup | None:
    """The layers that a table of the module serves."""
    for group in found.groups:
        if group.rotation is None:
            continue
        name = group.name
        if model_type == "deepseek_v4":
            name = "main" if name == "sliding_attention" else "compress"
        if label is None or name == label:
            return group
    return None


def differences(model_type: str, form: str) -> list[str]:
    """What differs between a model's own code and the reading of its config."""
    config = config_of(model_type)
    found = read(model_type, config, form)
    tables = tables_of(model_type, config)
    assert tables
    wrong = []
    for table in tables:
        group = group_of(model_type, found, table.label)
        if group is None or group.rotation is None:
            wrong.append(f"{model_type} {table.label}: no such layers in {found.groups}")
            continue
        rope = group.rotation.build(precision="float32")
        wrong += compared(model_type, config, table, rope)
    return wrong


def compared(model_type: str, config: Any, table: Table, rope: Any) -> list[str]:
    where, f = f"{model_type} {table.label or ''}", rope.frequencies()
    theirs, ours = table.inv_freq.double(), f.inv_freq
    if model_type == "nanochat":  # its function turns backward, not its table
        ours = -ours
    if theirs.shape != ours.shape:
        return [f"{where}: {ours.shape[0]} frequencies, not {theirs.shape[0]}"]
    wrong = []
    error = ((theirs - ours).abs() / theirs.clamp(min=1e-300)).max()
    if not error <= 1e-6:
        wrong.append(f"{where}: frequencies differ by {error:.1e}")
    if abs(float(f.attention_scale) - table.attention_scale) > 1e-9:
        wrong.append(f"{where}: scale {f.attention_scale}, not {table.attention_scale}")
    generator = torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, heads, POSITIONS.shape[1], rope.config.head_dim, generator=generator)
        for heads in (4, 2)
    )
    expected = rotated(model_type, config, table, q.clone(), k.clone(), POSITIONS)
    for mine, own in zip(rope(q, k, POSITIONS), expected, strict=True):
        if not (mine - own).abs().max() <= 1e-5:
            wrong.append(f"{where}: rotated vectors differ by {(mine - own).abs().max():.1e}")
    return wrong


@pytest.mark.parametrize("form", ["to_dict", "to_diff_dict"])
def test_every_model_type_is_read_as_its_own_code_rotates(form: str) -> None:
    wrong = {model_type: differences(model_type, form) for model_type in ROTARY}
    equal = [model_type for model_type, found in wrong.items() if not found]
    count = f"{len(equal)} of {len(ROTARY)}"
    print(f"{form}: {count} model types equal")
    assert len(ROTARY) == 177
    assert count == "177 of 177", [line for lines in wrong.values() for line in lines]


def test_the_page_says_the_count() -> None:
    assert f"**{len(ROTARY)} of {len(ROTARY)}** model types" in (DOCS / "configs.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 500.0}, "frequencies differ"),
        ({"layout": "interleaved"}, "rotated vectors differ"),
        ({"direction": "backward"}, "rotated vectors differ"),
        ({"rotary_dim": 64}, "32 frequencies, not 64"),
        ({"scaling": whorl.YaRN(2.0, 2048)}, r"scale 1\.06"),
    ],
)
def test_the_comparison_can_fail(change: dict[str, Any], message: str) -> None:
    config = config_of("llama")
    (table,) = tables_of("llama", config)
    rope = whorl.make("rope", **{"head_dim": 128, "precision": "float32", **change})
    assert re.search(message, " ".join(compared("llama", config, table, rope)))
