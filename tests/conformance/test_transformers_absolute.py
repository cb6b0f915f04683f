"""Sinusoidal and learned tables equal to those of models in transformers, by their own code."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.peers import needs_transformers_5
from whorl.encodings import Learned, Sinusoidal

pytestmark = needs_transformers_5

DIM, LENGTH = 16, 40


def model(name: str) -> Any:
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def assert_near(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["RoFormer", "Marian"])
def test_roformer_and_marian(name: str) -> None:
    kind = getattr(model(name.lower()), f"{name}SinusoidalPositionalEmbedding")
    theirs = kind(LENGTH, DIM).create_weight()
    ours = Sinusoidal(DIM, order="concatenated").table(torch.arange(LENGTH))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


def test_xlm() -> None:
    theirs = model("xlm").create_sinusoidal_embeddings(LENGTH, DIM, torch.empty(LENGTH, DIM))
    ours = Sinusoidal(DIM).table(torch.arange(LENGTH))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-7)


def test_whisper_near_by_default_and_bit_for_bit_in_float32_mode() -> None:
    theirs, at = model("whisper").sinusoids(1500, 64), torch.arange(1500)
    exact = Sinusoidal(64, order="concatenated", spacing="endpoints")
    assert_near(exact.table(at[:LENGTH]), theirs[:LENGTH])
    # Angles in float32 are off by half an ulp of 1024 at 1500, and their frequencies by as much.
    torch.testing.assert_close(exact.table(at), theirs, rtol=0, atol=2e-4)
    same = Sinusoidal(64, order="concatenated", spacing="endpoints", precision="float32")
    assert torch.equal(same.table(at), theirs)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("m2m_100", "M2M100SinusoidalPositionalEmbedding"),
        ("speech_to_text", "Speech2TextSinusoidalPositionalEmbedding"),
    ],
)
def test_fairseq_models_start_after_the_padding_index(name: str, kind: str) -> None:
    theirs = getattr(model(name), kind)(LENGTH, DIM, padding_idx=1)
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 1, 1]])  # 1 is padding
    ours = Sinusoidal(DIM, order="concatenated", spacing="endpoints")
    got = ours.embed(torch.zeros(2, 4, DIM), offset=2)
    real = ids != 1
    assert_near(got[real], theirs(ids)[real])
    assert not theirs(ids)[~real].any()  # they add nothing to padding, which is masked anyway
    same = Sinusoidal(DIM, order="concatenated", spacing="endpoints", precision="float32")
    assert torch.equal(same.table(torch.arange(2, LENGTH)), theirs.weights[2:LENGTH])


def test_cosines_first_for_the_time_steps_of_diffusion() -> None:
    config = SimpleNamespace(frequency_embedding_size=DIM, diffusion_max_period=500)
    theirs = model("vibevoice").VibeVoiceDiffusionHeadSinusoidalEmbedding(config)
    steps = torch.tensor([0.0, 0.125, 17.5, 39.0])
    ours = Sinusoidal(DIM, base=500, order="concatenated", first="cos")
    assert_near(ours.table(steps), theirs(steps))


def test_pytorch_tutorial_bit_for_bit_in_float32_mode() -> None:
    position = torch.arange(500).unsqueeze(1)
    ladder = torch.exp(torch.arange(0, DIM, 2) * (-math.log(10_000.0) / DIM))
    want = torch.zeros(500, DIM)
    want[:, 0::2], want[:, 1::2] = torch.sin(position * ladder), torch.cos(position * ladder)
    got = Sinusoidal(DIM, precision="float32").table(torch.arange(500))
    assert torch.equal(got, want)


def test_gpt2() -> None:
    module = model("gpt2")
    config = module.GPT2Config(n_positions=LENGTH, n_embd=DIM, n_layer=1, n_head=2, vocab_size=11)
    theirs = module.GPT2Model(config).eval()
    ours = Learned(DIM, max_length=LENGTH)
    ours.load_state_dict(theirs.wpe.state_dict())
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    seen: list[Tensor] = []
    theirs.drop.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    theirs(ids)
    assert torch.equal(ours.embed(theirs.wte(ids)), seen[0])


def test_bert() -> None:
    module = model("bert")
    config = module.BertConfig(
        max_position_embeddings=LENGTH, hidden_size=DIM, num_attention_heads=2, vocab_size=11
    )
    theirs = module.BertEmbeddings(config).eval()
    ours = Learned(DIM, max_length=LENGTH)
    ours.load_state_dict(theirs.position_embeddings.state_dict())
    ids, at = torch.tensor([[1, 2, 3]]), torch.tensor([[7, 0, 39]])
    segments = theirs.token_type_embeddings(torch.zeros_like(ids))
    mixed = theirs.LayerNorm(ours.embed(theirs.word_embeddings(ids) + segments, at))
    torch.testing.assert_close(mixed, theirs(ids, position_ids=at), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), [("opt", "OPT"), ("bart", "Bart")])
def test_opt_and_bart_keep_two_rows_in_front(name: str, kind: str) -> None:
    theirs = getattr(model(name), f"{kind}LearnedPositionalEmbedding")(LENGTH, DIM)
    ours = Learned(DIM, max_length=LENGTH)
    ours.load_state_dict({"weight": theirs.weight[2:]})
    want = theirs(torch.ones(1, LENGTH, dtype=torch.int64))
    assert torch.equal(ours.embed(torch.zeros(1, LENGTH, DIM)), want.reshape(1, LENGTH, DIM))


def test_roberta_counts_from_padding() -> None:
    module = model("roberta")
    config = module.RobertaConfig(
        max_position_embeddings=LENGTH + 2,
        hidden_size=DIM,
        num_attention_heads=2,
        vocab_size=11,
        pad_token_id=1,
        type_vocab_size=1,
    )
    theirs = module.RobertaEmbeddings(config).eval()
    ours = Learned(DIM, max_length=LENGTH)
    ours.load_state_dict({"weight": theirs.position_embeddings.weight[2:]})
    ids = torch.tensor([[5, 6, 7]])
    x = theirs.word_embeddings(ids) + theirs.token_type_embeddings(torch.zeros_like(ids))
    torch.testing.assert_close(theirs.LayerNorm(ours.embed(x)), theirs(ids), rtol=0, atol=1e-6)
