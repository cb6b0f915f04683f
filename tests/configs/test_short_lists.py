"""Lists with a value for each layer that end before the layers do, and sizes off powers of two.

What a list does not reach is as it is without the list: it rotates, by the common base. A list of
layer types is the exception, because it says how many layers there are to speak of.
"""

from typing import Any

import pytest

from tests.configs.gguf_files import metadata
from whorl.configs import ConfigError, LayerGroup, read_config

SIZES: dict[str, Any] = {"hidden_size": 192, "num_attention_heads": 6, "num_hidden_layers": 7}


def groups(**keys: Any) -> tuple[LayerGroup, ...]:
    return read_config({**SIZES, **keys}).groups


def unrotated(**keys: Any) -> list[int]:
    """The numbers of the layers that leave queries and keys as they are."""
    found = groups(**keys)
    assert sorted(n for group in found for n in group.layers) == list(range(7))
    return sorted(n for group in found if group.rotation is None for n in group.layers)


def bases(**keys: Any) -> dict[int, float]:
    return {
        layer: group.rotation.options["base"]
        for group in groups(**keys)
        if group.rotation is not None
        for layer in group.layers
    }


@pytest.mark.parametrize("model_type", ["smollm3", "mistral_large4_text"])
@pytest.mark.parametrize(
    ("flags", "still"),
    [
        ([1, 0, 1], [1]),
        ([0], [0]),
        ([1], []),
        ([1, 1, 1, 1, 1, 1, 0], [6]),
        ([1, 1, 1, 1, 1, 1, 1, 0], []),  # longer than the model
        ([], [3]),  # as without a list: each fourth
    ],
)
def test_no_rope_layers(model_type: str, flags: list[int], still: list[int]) -> None:
    keys = {"model_type": model_type, "no_rope_layer_interval": 4, "no_rope_layers": flags}
    assert unrotated(**keys) == still


def test_no_rope_layers_of_llama_4_are_its_layer_types() -> None:
    """Of three flags its class makes three layer types, and refuses them for seven layers."""
    found = groups(model_type="llama4_text", no_rope_layers=[1, 0, 1])
    assert {g.name: g.layers for g in found} == {
        "chunked_attention": (0, 2),
        "full_attention": (1,),
    }


@pytest.mark.parametrize("model_type", ["granite_swa", "granitemoe_swa"])
def test_bases_by_layer(model_type: str) -> None:
    keys = {"model_type": model_type, "rope_theta": 5e5, "layer_rope_theta": [2e4, 0.0, 3e4]}
    assert unrotated(**keys) == [1]
    assert bases(**keys) == {0: 2e4, 2: 3e4, 3: 5e5, 4: 5e5, 5: 5e5, 6: 5e5}


def test_an_empty_list_of_bases_is_none() -> None:
    assert unrotated(model_type="muse_glimmer_text", layer_rope_theta=[]) == [2, 6]
    assert unrotated(model_type="muse_glimmer_text", layer_rope_theta=[1e4, 0.0]) == [1]


@pytest.mark.parametrize(("given", "counted"), [(2, 2), (7, 7), (9, 7)])
def test_layer_types(given: int, counted: int) -> None:
    types = ["sliding_attention", *["full_attention"] * (given - 1)]
    found = groups(model_type="qwen3", head_dim=32, layer_types=types, sliding_window=16)
    assert [group.layers for group in found] == [(0,), tuple(range(1, counted))]
    assert [group.window for group in found] == [16, None]


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7, 8])
def test_sliding_window_patterns(period: int) -> None:
    found = groups(model_type="gemma3_text", head_dim=32, sliding_window_pattern=period)
    full = [n for group in found if group.window is None for n in group.layers]
    assert full == [n for n in range(7) if (n + 1) % period == 0]


def test_windows_and_ratios_by_layer() -> None:
    found = groups(model_type="ultrabert", attention_windows=[64, 0, None, 64])
    assert {g.name: g.layers for g in found} == {
        "sliding_attention": (0, 3),
        "full_attention": (1, 2),
    }
    found = groups(model_type="deepseek_v4", compress_ratios=[0, 4, 128, 4])
    assert [g.layers for g in found] == [(0,), (1, 3), (2,)]


def test_block_types_are_repeated() -> None:
    found = groups(model_type="recurrent_gemma", block_types=["recurrent", "attention"])
    assert [g.layers for g in found] == [(0, 2, 4, 6), (1, 3, 5)]
    assert [g.rotation is None for g in found] == [True, False]


def test_lists_of_layer_numbers() -> None:
    assert unrotated(model_type="mllama_text_model", cross_attention_layers=[5, 99]) == [5]
    assert unrotated(model_type="mllama_text_model", cross_attention_layers=[]) == []
    assert unrotated(model_type="mllama_text_model") == [3]
    assert unrotated(model_type="bamba", attn_layer_indices=[2, 4]) == [0, 1, 3, 5, 6]


@pytest.mark.parametrize(
    ("flags", "sliding"), [([True, False] * 4, (0, 2, 4, 6)), ([1, 1, 1, 1, 0, 0, 0], (0, 1, 2, 3))]
)
def test_patterns_of_gguf(flags: list[Any], sliding: tuple[int, ...]) -> None:
    keys = metadata("gemma3", block_count=7, attention__sliding_window=512)
    found = read_config({**keys, "gemma3.attention.sliding_window_pattern": flags})
    assert next(g.layers for g in found.groups if g.window == 512) == sliding
    with pytest.raises(ConfigError, match="must be a period, or 0 or 1 for each layer"):
        read_config({**keys, "gemma3.attention.sliding_window_pattern": flags[:6]})


def test_heads_by_layer_of_gguf() -> None:
    """Layers past the end of the list attend."""
    keys = metadata("lfm2", block_count=7, attention__head_count_kv=[0, 2, 0])
    found = {g.rotation is not None: g.layers for g in read_config(keys).groups}
    assert found == {False: (0, 2), True: (1, 3, 4, 5, 6)}


@pytest.mark.parametrize(
    ("head", "share", "width"),
    [
        (80, 0.682, 54),
        (96, 0.7, 67),
        (100, 0.259, 25),
        (7, 0.99, 6),
        (72, 1 / 3, 24),
        (90, 0.35, 31),
    ],
)
def test_a_share_is_cut_and_not_rounded(head: int, share: float, width: int) -> None:
    """int(H p), as transformers has it; an odd width takes one more channel for its last pair."""
    (group,) = groups(model_type="phi", head_dim=head, partial_rotary_factor=share)
    assert group.rotation is not None
    assert group.rotation.options["rotary_dim"] == width + width % 2
    ladder = group.rotation.frequencies(None).inv_freq
    assert float(ladder[1]) == pytest.approx(10_000.0 ** (-2 / width), rel=1e-12)


@pytest.mark.parametrize(("hidden", "heads", "width"), [(200, 6, 33), (191, 6, 31), (215, 6, 35)])
def test_a_head_is_cut_and_not_rounded(hidden: int, heads: int, width: int) -> None:
    keys = {"model_type": "mistral", "hidden_size": hidden, "num_attention_heads": heads}
    with pytest.raises(ConfigError, match=f"head_dim must be even.* got {width}"):
        groups(**keys)


def test_shares_of_towers_are_cut_and_not_rounded() -> None:
    audio = {"model_type": "musicflamingo", "head_dim": 1290, "partial_rotary_factor": 0.2015}
    assert 1290 * 0.2015 > 259.5
    with pytest.raises(ConfigError, match="a share that two axes can take of 1290 channels"):
        read_config(audio)
    fits = {**audio, "partial_rotary_factor": 0.2022}  # 260.8 channels
    parts = read_config(fits).parts.values()
    rotations = [g.rotation for part in parts for g in part.groups if g.rotation is not None]
    assert any(r.options.get("rotary_dim") == 520 for r in rotations), rotations


def test_the_ladder_of_efficientloftr_is_cut_and_not_rounded() -> None:
    keys = {"model_type": "efficientloftr", "hidden_size": 256, "num_attention_heads": 8}
    read_config({**keys, "partial_rotary_factor": 4.0})
    with pytest.raises(
        ConfigError, match="hidden_size must be 254, because rows and columns rotate 127 channels"
    ):
        read_config({**keys, "partial_rotary_factor": 3.99})  # 127.68 channels


def test_the_table_of_mistral_4_is_cut_and_not_rounded() -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    keys = {"model_type": "mistral4", "qk_rope_head_dim": 64, "qk_nope_head_dim": 64}
    half = {**keys, "rope_parameters": {**rope, "partial_rotary_factor": 0.5}}
    read_config(half, parity="transformers")
    less = {**keys, "rope_parameters": {**rope, "partial_rotary_factor": 0.499}}  # 63.87 channels
    with pytest.raises(ConfigError, match="its table has 63 channels, but 64 channels of a head"):
        read_config(less, parity="transformers")
