"""No false alarm: the default configs of transformers get notes at most."""

import logging
from typing import Any

import pytest

from tests.configs.census import ROTARY, without_timm
from tests.peers import needs_transformers_5
from whorl.configs import diagnosis

pytest.importorskip("transformers")

pytestmark = needs_transformers_5
logging.getLogger("transformers").setLevel(logging.ERROR)


def alarms(config: dict[str, Any]) -> list[str]:
    """Errors and warnings; a few classes are parts of others only and have no model_type at all."""
    part = config["model_type"] == ""
    found = diagnosis.diagnose(config, ignore=["no-model-type"] if part else [])
    return [f"{f.rule} {f.where}: {f.message}" for f in (*found.errors, *found.warnings)]


def test_there_are_177() -> None:
    assert len(ROTARY) == 177


@pytest.mark.slow
def test_no_default_config_raises_an_alarm() -> None:
    found = {}
    with without_timm():
        for rotary in ROTARY.values():
            config = rotary.config_class()
            whole = config.to_dict()
            brief = {**config.to_diff_dict(), "model_type": config.model_type}
            found[rotary.model_type] = alarms(whole) + alarms(brief)
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_check_can_fail() -> None:
    with without_timm():
        config = ROTARY["llama"].config_class().to_dict()
    assert alarms(config) == []
    config["rope_parameters"]["factor"] = 4.0
    (line,) = alarms(config)
    assert line.startswith("ignored-key rope_parameters.factor: rope_type default does not read")
