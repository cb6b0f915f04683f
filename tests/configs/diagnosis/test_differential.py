"""The doctor beside transformers: every family, written in the many ways of tests/configs.

Where transformers refuses a config the doctor must find an error, where its rotary module turns by
other frequencies than the reading an error or a warning, and where the two agree no error.
"""

import copy
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.configs.census import ROTARY
from tests.configs.own_code import GATES, Table, config_of, tables_of
from tests.configs.test_huggingface_census import group_of
from tests.configs.variants import variants
from tests.peers import needs_transformers_5
from whorl.configs import ModelPositions, diagnosis
from whorl.configs.huggingface import classes

pytest.importorskip("transformers")
pytestmark = [pytest.mark.filterwarnings("ignore"), needs_transformers_5]
logging.getLogger("transformers").setLevel(logging.ERROR)
_diagnose = diagnosis.diagnose

#: A text that is longer than any that a config speaks of.
LONG = 2**22
#: Every family gets one way of writing in so many, each way one family in so many.
SHARE = 20
#: Ways that say two things: an error is right even if transformers takes the one that is meant.
CONTRADICTORY = {"flat, other base beside", "two shares", "old and flat", "old and nested"}
CONTRADICTORY |= {"two bases beside", "full attention only"}
MORE: dict[str, dict[str, Any]] = {
    "head of 96": {"head_dim": 96},
    "head null, yarn": {
        "head_dim": None,
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 2e5},
    },
    "no head, dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "rotary switch of 1": {"attn_temperature_tuning": 1, "use_sliding_window": 1},
}

Case = tuple[str, str, dict[str, Any]]


def cases() -> Iterator[Case]:
    """Family, way of writing, config; a sample that has every family and every way."""
    for place, family in enumerate(ROTARY):
        gates = GATES.get(family, {})
        ways = [*variants(family), *((name, {**gates, **keys}) for name, keys in MORE.items())]
        for number, (way, keys) in enumerate(ways):
            if (number + place) % SHARE == 0:
                yield family, way, {"model_type": family, **copy.deepcopy(keys)}


def tables(family: str, config: Mapping[str, Any]) -> list[tuple[int | None, Table]] | None:
    """What the module of transformers holds for short texts and long ones; None if it refuses."""
    try:
        options = {name: copy.deepcopy(v) for name, v in config.items() if name != "model_type"}
        built = config_of(family, **options)
        found = tables_of(family, built)
        if family in classes.LATENT and 2 * len(found[0].inv_freq) != built.qk_rope_head_dim:
            return None  # the first text stops: the table is of another width
        short = [(None, table._replace(inv_freq=table.inv_freq.clone())) for table in found]
        return [*short, *((LONG, _grown(table) if _follows(table) else table) for table in found)]
    except Exception:  # whatever its code stops with
        return None


def _follows(table: Table) -> bool:
    rope = getattr(getattr(table.module, "config", None), "rope_parameters", None) or {}
    inner = rope.get(table.label, rope) or {}
    return inner.get("rope_type") in ("dynamic", "longrope")


def _grown(table: Table) -> Table:
    """The same after a long text."""
    label = () if table.label is None else (table.label,)
    table.module(torch.zeros(1, 1), torch.tensor([[0, LONG - 1]]), *label)
    inv_freq = getattr(table.module, "_".join((*label, "inv_freq")))
    scale = getattr(table.module, "_".join((*label, "attention_scaling")))
    return table._replace(inv_freq=inv_freq.clone(), attention_scale=float(scale))


def agree(family: str, reading: ModelPositions, held: list[tuple[int | None, Table]]) -> bool:
    for length, table in held:
        group = group_of(family, reading, table.label)
        if group is None or group.rotation is None:
            continue  # the module holds what no layer takes
        if not table.equals(group.rotation.frequencies(length), 1e-5):
            return False
    return True


def judged(case: Case) -> tuple[str, str]:
    """What transformers does with a case, and what is wrong with the doctor's answer, if any."""
    family, way, config = case
    found = diagnosis.diagnose(copy.deepcopy(config))
    errors = [finding.rule for finding in found.errors]
    held = tables(family, config)
    if held is None:
        return "refused", "" if errors else "no error"
    if found.reading is None:
        return "only transformers reads it", "" if errors else "no error"
    if not agree(family, found.reading, held):
        return "differs", "" if errors or found.warnings else "no error, no warning"
    right = way in CONTRADICTORY or set(errors) <= {"in-code", "class-default-wins"}  # keys unread
    return "agrees", "" if right else f"false alarm {errors}"


@pytest.mark.slow
def test_the_doctor_says_where_transformers_refuses_or_differs() -> None:
    counts, wrong = Counter[str](), []
    for case in cases():
        outcome, fault = judged(case)
        counts[outcome] += 1
        if fault:
            wrong.append(f"{case[0]}, {case[1]}: {outcome}, {fault}")
    print(f"{counts.total()} configs: {dict(counts)}; {len(wrong)} wrong")
    assert counts.total() > 400
    assert min(counts[name] for name in ("refused", "differs", "agrees")) > 50
    assert wrong == []


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = ("gemma4_text", "old", {"model_type": "gemma4_text", "rope_scaling": {"factor": 2.0}})
    differs = ("olmo3", "base", {"model_type": "olmo3", "rope_theta": 1e6})
    agrees = ("llama", "base", {"model_type": "llama", "rope_theta": 1e6})
    found = [judged(case) for case in (refused, differs, agrees)]
    assert found == [("refused", ""), ("differs", ""), ("agrees", "")]
    monkeypatch.setattr(diagnosis, "diagnose", lambda x: replace(_diagnose(x), findings=()))
    assert [judged(case)[1] for case in (refused, differs)] == ["no error", "no error, no warning"]
