"""Exports, judged by transformers itself: the same logits, and token ids that are the bytes."""

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from tests.fresh import run_fresh
from tests.peers import needs_transformers_5
from tests.scaling.samples import LONG, SHORT
from whorl.lab.export import export
from whorl.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Scaling, YaRN

from .exported import TOLERANCE, built, config_in, difference, loaded, rope, silent, words

pytestmark = needs_transformers_5

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gqa": {"kv_heads": 2},
    "mqa": {"kv_heads": 1, "layers": 3},
    "tied": {"tied": True},
    "wide": {"width": 128, "heads": 2},
    "odd": {"width": 54, "heads": 9, "kv_heads": 3, "hidden": 37, "tied": True},
    "dropout": {"dropout": 0.5},
}
#: For heads of 16 channels trained on 32 tokens: type and longest length in config.json.
SCALINGS: list[tuple[Scaling, str, int]] = [
    (Linear(4.0), "linear", 32),
    (NTK(4.0), "default", 32),
    (DynamicNTK(alpha=4.0), "default", 32),
    (DynamicNTK(4.0, 32), "dynamic", 32),
    (YaRN(4.0, 32, beta_fast=3.0), "yarn", 128),
    (YaRN(4.0, 32, beta_fast=3.0, truncate=False, attention_factor=1), "yarn", 128),
    (YaRN(4.0, 32, beta_slow=0.5, mscale=0.7, mscale_all_dim=2), "yarn", 128),
    (YaRN(4.0, 32, mscale=0.7), "yarn", 128),
    (YaRN(4.0, 32, mscale=2.0, mscale_rule="each"), "yarn", 128),
    (Llama3(8.0, 32), "llama3", 256),
    (LongRoPE(SHORT, LONG, 32, factor=8.0), "longrope", 256),
    (LongRoPE(SHORT, LONG, 16, attention_factor=1.2), "longrope", 32),
]


def test_warnings_of_transformers_are_seen() -> None:
    with pytest.raises(AssertionError, match="wrong config"), silent():
        logging.getLogger("transformers.configuration_utils").warning("wrong config")


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_norms_of_queries_and_keys_make_a_qwen3(layout: str, tmp_path: Path) -> None:
    model = built(rope(layout=layout), qk_norm="before", kv_heads=2)
    export(model, tmp_path / "out", length=128)
    assert config_in(tmp_path / "out")["model_type"] == "qwen3"
    assert difference(model, tmp_path / "out") <= TOLERANCE


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_are_equal(shape: dict[str, Any], tmp_path: Path) -> None:
    model = built(**shape)
    assert export(model, tmp_path / "out", length=128) == tmp_path / "out"
    assert difference(model, tmp_path / "out") <= TOLERANCE
    config = config_in(tmp_path / "out")
    assert config["max_position_embeddings"] == 128
    assert config["attention_dropout"] == model.config.dropout


def test_only_the_precision_of_angles_differs(tmp_path: Path) -> None:
    """Far out, where angles in float32 are off by more than the rounding of logits."""
    model, like_theirs = built(), built(rope(precision="float32"))
    folder = export(model, tmp_path / "out", length=64)
    alike, apart = (difference(one, folder, length=1024) for one in (like_theirs, model))
    assert 10 * alike < apart < 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "interleaved"},
        {"layout": "interleaved", "out_layout": "half"},
        {"layout": "half", "out_layout": "interleaved"},
        {"base": 500.0},
        {"rotary_dim": 16, "table": "on_the_fly", "impl": "reference"},
    ],
    ids=str,
)
def test_options_of_rope(options: dict[str, Any], tmp_path: Path) -> None:
    model = built(rope(**options), kv_heads=2)
    export(model, tmp_path / "out", length=64)
    assert difference(model, tmp_path / "out") <= TOLERANCE


@pytest.mark.parametrize(("scaling", "kind", "longest"), SCALINGS, ids=lambda v: str(v)[:40])
def test_scalings(scaling: Scaling, kind: str, longest: int, tmp_path: Path) -> None:
    model = built(rope(scaling=scaling, layout="interleaved"))
    folder = export(model, tmp_path / "out", length=32)
    for length in (20, 64):  # short and long sets, where there are two
        assert difference(model, folder, length) <= TOLERANCE
    assert config_in(folder)["rope_parameters"]["rope_type"] == kind
    assert config_in(folder)["max_position_embeddings"] == longest
    plain = built(rope(layout="interleaved"))
    assert difference(plain, folder) > 1e-2, "a scaling that changes nothing tests nothing"


@pytest.mark.parametrize(
    ("name", "value"), [("rope_theta", 9000.0), ("rms_norm_eps", 1e-2), ("hidden_act", "gelu")]
)
def test_the_comparison_can_fail(name: str, value: Any, tmp_path: Path) -> None:
    model = built()
    folder = export(model, tmp_path / "out", length=64)
    config = config_in(folder)
    (config["rope_parameters"] if name == "rope_theta" else config)[name] = value
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert difference(model, folder) > 100 * TOLERANCE


@pytest.mark.slow
@settings(max_examples=12, derandomize=True)  # rounding: up to 6e-6 in a hundred draws
@given(
    head_dim=st.integers(1, 8).map(lambda n: 2 * n),
    # Many heads: below a width of 32 rounding alone, ours and theirs, comes to 1e-5.
    groups=st.sampled_from([(16, 16), (16, 2), (18, 6), (20, 1)]),
    layers=st.integers(1, 2),
    tied=st.booleans(),
    layout=st.sampled_from(["half", "interleaved"]),
    base=st.floats(10.0, 1e7),
)
def test_any_shape(
    head_dim: int, groups: tuple[int, int], layers: int, tied: bool, layout: str, base: float
) -> None:
    heads, kv_heads = groups
    shape = {"width": head_dim * heads, "heads": heads, "kv_heads": kv_heads}
    model = built(rope(layout=layout, base=base), layers=layers, tied=tied, **shape)
    with tempfile.TemporaryDirectory() as folder:
        export(model, Path(folder) / "out", length=32)
        assert difference(model, Path(folder) / "out", length=16) <= TOLERANCE


def test_what_is_written(tmp_path: Path) -> None:
    model = built(tied=True, kv_heads=2)
    folder = export(model, tmp_path / "new" / "out", length=64)
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    with safe_open(str(folder / "model.safetensors"), framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118  # no dictionary
    config = config_in(folder)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 10_000.0}
    assert config["dtype"] == "float32"
    # Llama's own 1 and 2 would end a text at byte 2.
    assert [config[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [None] * 3
    generator = loaded(folder)
    assert generator.generation_config.eos_token_id is None
    written = generator.generate(torch.tensor([[65, 66]]), max_new_tokens=5, do_sample=False)
    assert written.shape == (1, 7)


def test_weights_keep_their_dtype(tmp_path: Path) -> None:
    model = built().bfloat16()
    found = loaded(export(model, tmp_path / "out", length=64))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found.lm_head.weight, model.head.weight)


def test_the_model_is_left_alone(tmp_path: Path) -> None:
    model = built(rope(layout="interleaved"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    export(model, tmp_path / "out", length=64)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


# Tokenizers.


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = export(built(), tmp_path_factory.mktemp("bytes") / "out", length=64)
    with silent():
        return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f(x):\n    return x\r\n\t# don't  touch , please .",
        " leading and trailing ",
        "größer 漢字 \U0001f642\u200d e\u0301 \ufeff",
        "<s> </s> <unk> <|endoftext|> [MASK]",
        "".join(map(chr, range(0x250))),
    ],
)
def test_ids_are_bytes(byte_tokenizer: Any, text: str) -> None:
    check_bytes(byte_tokenizer, text)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_ids_of_any_text_are_its_bytes(byte_tokenizer: Any, text: str) -> None:
    check_bytes(byte_tokenizer, text)


def check_bytes(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_every_byte_has_its_id(byte_tokenizer: Any) -> None:
    assert sorted(byte_tokenizer.get_vocab().values()) == list(range(256))
    assert byte_tokenizer.all_special_ids == []
    for byte in range(256):
        assert byte_tokenizer.decode([byte]) == bytes([byte]).decode(errors="replace")


def test_a_given_tokenizer_is_copied(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(words("a", "b", added=["<end>"])), encoding="utf-8")
    folder = export(built(vocab=3), tmp_path / "out", tokenizer=file, length=64)
    assert (folder / "tokenizer.json").read_bytes() == file.read_bytes()
    with silent():
        found = transformers.AutoTokenizer.from_pretrained(folder)
    assert found("b a <end> b")["input_ids"] == [1, 0, 2, 1]
    assert difference(built(vocab=3), folder) <= TOLERANCE


def test_a_unigram_tokenizer_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    document = words()
    document["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.0]]}
    file.write_text(json.dumps(document), encoding="utf-8")
    folder = export(built(vocab=2), tmp_path / "out", tokenizer=str(file), length=64)
    assert len(transformers.AutoTokenizer.from_pretrained(folder)) == 2


def test_import_stays_light() -> None:
    found = run_fresh("import whorl.lab.export")
    assert found.error is None
    assert {"transformers", "safetensors"} & found.after == set()
