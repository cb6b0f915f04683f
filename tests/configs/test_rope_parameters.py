"""Scalings in the words of transformers read back as the same frequencies."""

from typing import Any

import pytest
import torch

from tests.peers import needs_transformers_5
from whorl import RoPE
from whorl.configs import read_config, rope_parameters
from whorl.scaling import (
    NTK,
    DynamicLinear,
    DynamicNTK,
    DynamicYaRN,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Scaling,
    YaRN,
)

pytestmark = needs_transformers_5

BASE, WIDTH, TRAINED = 500_000.0, 64, 4096
SHORT, LONG = [1.0 + i / 32 for i in range(32)], [2.0 + i for i in range(32)]

SPOKEN: dict[str, Scaling | None] = {
    "none": None,
    "linear": Linear(4.0),
    "ntk": NTK(8.0),
    "alpha": DynamicNTK(alpha=1000.0),
    "dynamic": DynamicNTK(2.0, TRAINED),
    "by-parts": NTKByParts(4.0, TRAINED),
    "by-parts-options": NTKByParts(4.0, TRAINED, beta_fast=16.0, beta_slow=2.0, truncate=False),
    "yarn": YaRN(4.0, TRAINED),
    "yarn-truncate": YaRN(4.0, TRAINED, truncate=False, beta_slow=2.0),
    "yarn-mscales": YaRN(4.0, TRAINED, mscale=0.5, mscale_all_dim=0.25),
    "yarn-lone": YaRN(4.0, TRAINED, mscale=0.5),
    "yarn-each": YaRN(4.0, TRAINED, mscale_rule="each"),
    "yarn-each-lone": YaRN(4.0, TRAINED, mscale=0.5, mscale_rule="each"),
    "yarn-each-below": YaRN(4.0, TRAINED, mscale_all_dim=0.5, mscale_rule="each"),
    "yarn-each-zero": YaRN(4.0, TRAINED, mscale=0, mscale_rule="each"),
    "yarn-each-both": YaRN(4.0, TRAINED, mscale=1.5, mscale_all_dim=0.5, mscale_rule="each"),
    "yarn-factor": YaRN(4.0, TRAINED, attention_factor=1.25, mscale=0.5, mscale_all_dim=0.25),
    "llama3": Llama3(8.0, TRAINED, 1.5, 3.0),
    "longrope": LongRoPE(SHORT, LONG, TRAINED, factor=4.0),
    "longrope-scale": LongRoPE(SHORT, LONG, TRAINED, attention_factor=1.5),
    "proportional": Proportional(0.25),
    "proportional-factor": Proportional(0.5, 2.0),
}


def config(parameters: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "head_dim": WIDTH,
        "max_position_embeddings": TRAINED,
        "rope_parameters": parameters,
    }


@pytest.mark.parametrize("name", SPOKEN)
def test_what_is_written_reads_back(name: str) -> None:
    scaling = SPOKEN[name]
    found = rope_parameters(scaling, BASE, WIDTH)
    assert found.why is None
    again = read_config(config(found.parameters)).group().rotation
    assert again is not None
    for length in (None, 3000, 20_000):
        wanted = RoPE(WIDTH, base=BASE, scaling=scaling).frequencies(length)
        got = again.frequencies(length)
        torch.testing.assert_close(got.inv_freq, wanted.inv_freq, rtol=1e-12, atol=0.0)
        assert got.attention_scale == pytest.approx(wanted.attention_scale, rel=1e-12)


@pytest.mark.parametrize("name", SPOKEN)
def test_transformers_takes_it_the_same_way(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    scaling = SPOKEN[name]
    found = rope_parameters(scaling, BASE, WIDTH)
    theirs = transformers.LlamaConfig(**{**config(found.parameters), "num_hidden_layers": 1})
    module = LlamaRotaryEmbedding(theirs)
    wanted = RoPE(WIDTH, base=BASE, scaling=scaling).frequencies()
    torch.testing.assert_close(module.inv_freq.double(), wanted.inv_freq, rtol=1e-5, atol=0.0)
    assert module.attention_scaling == pytest.approx(wanted.attention_scale, rel=1e-6)


def test_a_single_pair_keeps_its_base() -> None:
    assert rope_parameters(NTK(8.0), BASE, 2).parameters == {
        "rope_type": "default",
        "rope_theta": BASE,
    }


@pytest.mark.parametrize(
    ("scaling", "why"),
    [
        (DynamicLinear(TRAINED), "transformers has no type for 'dynamic_linear'"),
        (DynamicYaRN(TRAINED), "transformers has no type for 'dynamic_yarn'"),
        (YaRN(4.0, TRAINED, ramp="rotations"), "no ramp by rotations, as 'yarn' has"),
        (NTKByParts(4.0, TRAINED, ramp="rotations"), "no ramp by rotations, as 'ntk_by_parts' has"),
    ],
)
def test_what_has_no_words_says_so(scaling: Scaling, why: str) -> None:
    found = rope_parameters(scaling, BASE, WIDTH)
    assert found.parameters is None
    assert why in (found.why or "")


def test_what_other_keys_have_to_say() -> None:
    assert rope_parameters(DynamicNTK(2.0, TRAINED), BASE, WIDTH).unsaid == (
        "max_position_embeddings: 4096, from which on it scales",
    )
    two = LongRoPE(SHORT, LONG, TRAINED, attention_factor=1.0, long_attention_factor=1.25)
    assert rope_parameters(two, BASE, WIDTH).unsaid == (
        "the attention scale 1.25 past 4096 tokens",
    )
