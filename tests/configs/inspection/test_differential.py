"""What inspect says of transformers and mlx-lm, beside both, for configs written in many ways."""

import copy
import logging
from typing import Any

import pytest
import torch

from tests.configs.diagnosis.test_differential import agree, cases, tables
from tests.configs.variants import VARIANTS
from tests.peers import needs_transformers_5
from whorl.configs import ConfigError, ModelPositions, read_config
from whorl.configs.inspection.frameworks import ConfiguredLayers, compare_frameworks, mlx_lm

from .test_executed import frequencies, of_mlx, small, turns_of

pytest.importorskip("transformers")
pytestmark = [pytest.mark.filterwarnings("ignore"), needs_transformers_5]
logging.getLogger("transformers").setLevel(logging.ERROR)
SHARE = 4  # of the configs that the doctor is tried on


def outcomes(config: dict[str, Any], model: ModelPositions) -> set[str]:
    """What transformers is said to do with the layers that rotate."""
    found: set[str] = set()
    for group in model.groups:
        if group.rotation is not None:
            length = model.context or 2048
            lengths = [length, 2**22] if _follows(group.rotation.options) else [length]
            found.add(
                compare_frameworks(ConfiguredLayers(model, group, config), lengths)[0].outcome
            )
    return found


def _follows(options: Any) -> bool:
    scaling = options.get("scaling")
    return scaling is not None and bool(scaling.follows_length)


def test_transformers_is_said_to_agree_only_where_it_does() -> None:
    count, wrong = 0, []
    for family, way, config in list(cases())[::SHARE]:
        try:
            model = read_config(copy.deepcopy(config))
        except ConfigError:
            continue
        held, said = tables(family, config), outcomes(config, model)
        if held is None:
            right = "agrees" not in said and "differs" not in said
        else:
            right = "refuses" not in said and (agree(family, model, held) or said != {"agrees"})
        count += 1
        if not right:
            wrong.append((family, way, held is None, said))
    print(f"{count} configs")
    assert count > 100
    assert wrong == []


@pytest.mark.parametrize("model_type", sorted(mlx_lm.FAMILIES))
def test_mlx_lm_does_what_is_said_or_it_is_unknown(model_type: str) -> None:
    ways = list(VARIANTS)[sorted(mlx_lm.FAMILIES).index(model_type) % 4 :: 4]
    for way in ways:
        config = small(model_type)
        config.pop("rope_theta", None)
        config |= VARIANTS[way](["full_attention"], 32)
        try:
            model = read_config(copy.deepcopy(config))
        except ConfigError:
            continue
        for group in model.groups:
            if group.rotation is not None:
                _compare(ConfiguredLayers(model, group, config), way)


def _compare(case: ConfiguredLayers, way: str) -> None:
    said = compare_frameworks(case, [50_000])[1]
    if said.outcome == "unknown":
        return
    try:
        rope = of_mlx(dict(case.whole))[case.group.layers[0]].rope
        theirs, other, _ = turns_of(rope, 50_000)
    except (TypeError, ValueError, KeyError, AttributeError):
        assert said.outcome == "refuses", way
        return
    assert said.outcome in ("agrees", "differs"), way
    inv_freq, scale = frequencies(mlx_lm.read(case), 50_000)
    torch.testing.assert_close(inv_freq, theirs, rtol=2e-6, atol=0, msg=way)
    assert scale == pytest.approx(other, rel=1e-6), way


def test_a_verdict_on_some_layers_is_none_on_all() -> None:
    from whorl.configs.inspection import inspect

    words = inspect("gemma-3-4b", trained=16_384, length=200_000).verdict
    assert "vLLM read it the same way" in words
    assert (
        "llama.cpp reads some layers the same way at 200,000 tokens; its reading of others" in words
    )


def test_a_model_goes_by_the_name_in_its_config() -> None:
    from whorl.configs import presets
    from whorl.configs.inspection import inspect

    found = inspect({**presets.load("deepseek-v3"), "model_type": "kimi_k2"})
    assert found.verdict.startswith("kimi_k2: ")
    assert inspect("gemma-3-4b").verdict.startswith("gemma3_text: ")


def test_what_transformers_refuses_is_unknown_of_those_who_load_by_it() -> None:
    config = {"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}}
    model = read_config(config)
    found = compare_frameworks(ConfiguredLayers(model, model.groups[0], config), [4096])
    assert [each.outcome for each in found] == ["refuses", "unknown", "unknown", "unknown"]
    assert found[0].why == "rope_parameters.factor is missing"
    assert found[2].why is not None
    assert found[2].why.startswith("transformers refuses this config")
    latent = {"model_type": "deepseek_v3", "head_dim": 128}
    model = read_config(latent)
    stopped = compare_frameworks(ConfiguredLayers(model, model.groups[0], latent), [4096])[0]
    assert (stopped.outcome, stopped.why) == (
        "refuses",
        "head_dim is 128, and the table that transformers' deepseek_v3 makes with it does not fit"
        " qk_rope_head_dim 64",
    )
