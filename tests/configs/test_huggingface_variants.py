"""Readings beside transformers, for every family written in many ways (variants.py).

Under parity the inverse frequencies and the scale must be those of the model's own module, or both
refuse. By default they must be the same, or a note must say that transformers differs or refuses.
"""

import copy
from collections import Counter
from typing import Any

import pytest

import whorl
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError, ModelPositions, Parity

from .census import ROTARY
from .own_code import Table, config_of, tables_of
from .variants import VARIANTS, variants

pytestmark = [pytest.mark.filterwarnings("ignore"), needs_transformers_5]

#: The quick tier takes one way of writing in so many.
SHARE = 12
#: Where a table is not the whole of what a model does, or a parameter is none that is read.
APART = {
    ("csm_depth_decoder_model", "yarn with null factor"): "33 / 512 is a factor below 1",
    ("glm4_moe", "old dynamic without base"): "an odd number of channels; see rotations.py",
    ("phimoe", "flat longrope"): "its forward takes another scale than the module holds",
}


def theirs(model_type: str, data: dict[str, Any]) -> list[Table] | None:
    """The tables of a model's own module; None if it cannot be built, or fails when it turns."""
    options = {name: copy.deepcopy(v) for name, v in data.items() if name != "model_type"}
    try:
        config = config_of(model_type, **options)
        tables = tables_of(model_type, config)
    except Exception:  # of any kind: KeyError, TypeError, those of its validation
        return None
    if model_type == "mistral4" and 2 * len(tables[0].inv_freq) != config.qk_rope_head_dim:
        return None  # queries and keys are narrower than the table
    return tables


def read(data: dict[str, Any], parity: Parity | None) -> ModelPositions | None:
    try:
        return whorl.read_config(copy.deepcopy(data), parity=parity)
    except ConfigError:
        return None


def equal(found: ModelPositions, tables: list[Table]) -> bool:
    """Whether every rotated group has the numbers of its table."""
    for table in tables:
        for group in found.groups:
            name = group.name
            if found.model_type == "deepseek_v4":
                name = "main" if name == "sliding_attention" else "compress"
            if group.rotation is None or table.label not in (None, name):
                continue
            if not table.equals(group.rotation.frequencies(), 1e-6):
                return False
    return True


def noted(found: ModelPositions) -> set[str]:
    ids = {note.id for note in found.notes}
    return ids & {"transformers-differs", "transformers-refuses"}


def verdict(model_type: str, data: dict[str, Any]) -> str:
    """What comes of one config; a word with "wrong" in it is a defect."""
    tables = theirs(model_type, data)
    followed, right = read(data, "transformers"), read(data, None)
    if tables is None:
        if followed is not None:
            return "wrong: parity reads what transformers refuses"
        silent = right is not None and not noted(right)
        return "wrong: no note of a refusal" if silent else "both refuse"
    if followed is None:
        return "wrong: parity refuses what transformers reads"
    if not equal(followed, tables):
        return "wrong: parity has other numbers"
    if right is None:
        return "equal, refused by default"
    if not equal(right, tables):
        return "equal, noted" if noted(right) else "wrong: no note of a difference"
    return "equal"


def compared(share: int, first: int = 0) -> Counter[str]:
    """Counts of verdicts: one way in ``share`` of every family, every way in so many of them."""
    counts: Counter[str] = Counter()
    wrong = []
    for place, model_type in enumerate(ROTARY):
        for number, (name, options) in enumerate(variants(model_type)):
            if (model_type, name) in APART or (place + number) % share != first:
                continue
            found = verdict(model_type, {"model_type": model_type, **options})
            counts[found] += 1
            if "wrong" in found:
                wrong.append(f"{model_type}, {name}: {found}")
    print(f"{sum(counts.values())} configs of {len(ROTARY)} families: {dict(counts)}")
    assert wrong == []
    return counts


def test_every_family_written_in_many_ways() -> None:
    counts = compared(SHARE)
    assert counts["equal"] > 300
    assert counts["both refuse"] > 80
    assert counts["equal, noted"] > 50


#: Each share has every family in three ways or more, every way in thirteen families or more.
SHARES = [
    pytest.param(first, marks=pytest.mark.slow if first % 4 == 1 else pytest.mark.exhaustive)
    for first in range(1, SHARE)
]


@pytest.mark.parametrize("first", SHARES)
def test_every_family_written_in_every_way(first: int) -> None:
    assert compared(SHARE, first)["equal"] > 300


def test_the_comparison_can_fail() -> None:
    tables = theirs("llama", {"rope_theta": 5e5})
    assert tables is not None
    assert equal(whorl.read_config({"model_type": "llama", "rope_theta": 5e5}), tables)
    assert not equal(whorl.read_config({"model_type": "llama", "rope_theta": 4e5}), tables)
    assert not equal(
        whorl.read_config({"model_type": "llama", "rope_theta": 5e5, "head_dim": 64}), tables
    )
    assert len(VARIANTS) == 48
