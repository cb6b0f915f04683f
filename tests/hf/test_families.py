"""Models give the same outputs, gradients and text with whorl installed as without."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache, masking_utils

import whorl
from whorl.hf.interface import build_mask

from .models import (
    CHANGED,
    ENCODERS,
    KINDS,
    ROTARY,
    SEQ2SEQ,
    add_labels,
    build_inputs,
    build_model,
    compare,
    compute_logits,
    find_gradients,
    list_gradients,
)

pytestmark = pytest.mark.slow

# Beyond one block of queries in whorl's attention.
LENGTH = 300


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("kind", sorted(KINDS))
@torch.no_grad()
def test_outputs_stay_the_same(kind: str, padding: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, LENGTH, padding)
    before = compute_logits(model, inputs)
    whorl.hf.install(model)
    compare(before, compute_logits(model, inputs))
    whorl.hf.uninstall(model)
    assert torch.equal(before, compute_logits(model, inputs))


def test_the_gelu_of_bloom_is_that_of_transformers() -> None:
    """Values and gradients, from numbers that it drops to those that it keeps."""
    stock, installed = build_model("bloom"), build_model("bloom")
    whorl.hf.install(installed)
    found = []
    for model in (stock, installed):
        x = torch.linspace(-12, 12, 97, dtype=torch.float64, requires_grad=True)
        out = model.transformer.h[0].mlp.gelu_impl(x)
        (first,) = torch.autograd.grad(out.square().sum(), x)
        found.append((out.detach(), first.detach()))
    for expected, actual in zip(*found, strict=True):
        assert float((expected - actual).abs().max()) < 1e-6 * float(expected.abs().max())
    assert not torch.equal(found[0][0], found[1][0])  # two ways to compute it


@pytest.mark.parametrize("kind", ["t5", "mt5", "umt5"])
def test_the_norm_of_t5_is_that_of_transformers(kind: str) -> None:
    """Computed in another way only in float32 and without gradients."""
    stock, installed = build_model(kind), build_model(kind)
    whorl.hf.install(installed)
    norms = [model.encoder.block[0].layer[0].layer_norm for model in (stock, installed)]
    width = norms[0].weight.shape[0]
    for norm in norms:
        norm.weight.data = torch.linspace(0.5, 2, width)
    x = torch.randn(3, width, generator=torch.Generator().manual_seed(0)) * 100
    tiny = x * 1e-5  # where eps decides
    with torch.no_grad():
        for given in (x, tiny):
            before, kept = norms[0](given), given.clone()
            after = norms[1](given)
            assert float((before - after).abs().max()) < 1e-6 * float(before.abs().max())
            assert torch.equal(given, kept)
        assert type(norms[0]) is not type(norms[1])
        assert torch.equal(norms[0](x.bfloat16()), norms[1](x.bfloat16()))
    assert torch.equal(norms[0](x), norms[1](x))
    whorl.hf.uninstall(installed)
    assert type(norms[0]) is type(norms[1])


@torch.no_grad()
def test_positions_of_bloom_skip_padding_between_tokens() -> None:
    model, inputs = build_model("bloom"), build_inputs("bloom", LENGTH, "middle")
    before = compute_logits(model, inputs)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))


@torch.no_grad()
def test_positions_of_bloom_skip_padding_in_a_static_cache() -> None:
    """Where the mask is a matrix."""
    model, inputs = build_model("bloom"), build_inputs("bloom", 40, "middle")
    mask = torch.nn.functional.pad(inputs["attention_mask"], (0, 4))

    def run() -> Tensor:
        held, found = StaticCache(config=model.config, max_cache_len=44), []
        for start, end in ((0, 40), (40, 41), (41, 43)):
            tokens = inputs["input_ids"][:, : end - start]
            mask[:, start:end] = inputs["attention_mask"] if not start else 1
            logits = model(tokens, attention_mask=mask, past_key_values=held).logits
            found.append(logits[mask[:, start:end].bool()])
        return torch.cat(found)

    before = run()
    with whorl.hf.install(model):
        mask[:, 40:] = 0
        compare(before, run())


def test_outputs_depend_on_positions() -> None:
    """Else the tests of this file would pass with any attention."""
    for kind in CHANGED:
        model, inputs = build_model(kind), build_inputs(kind, 40)
        with whorl.hf.install(model), torch.no_grad():
            before = compute_logits(model, inputs)
        with whorl.hf.install(model, whorl.NoPE()), torch.no_grad():
            after = compute_logits(model, inputs)
        assert float((before - after).abs().max()) > 0.01, kind


# Rotary models whose weights are computed in a way of their own, and one without.
WEIGHTS = ["gemma2", "gpt_oss", "llama"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_gradients_stay_the_same(kind: str) -> None:
    model, inputs = build_model(kind), add_labels(build_inputs(kind, LENGTH, "left"))
    model.train()
    before = find_gradients(model, inputs)
    with whorl.hf.install(model):
        after = find_gradients(model, inputs)
    assert before.keys() == after.keys()
    for name, gradient in before.items():
        compare(gradient, after[name])


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=str)
@pytest.mark.parametrize("kind", [*sorted(set(CHANGED) - {*ENCODERS, "xlnet"}), "llama", "mistral"])
def test_generated_text_stays_the_same(kind: str, options: dict[str, object]) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 40, "left")
    inputs.pop("decoder_input_ids", None)
    model.generation_config.eos_token_id = None

    def generate() -> Tensor:
        torch.manual_seed(0)
        settings = {"do_sample": False, **options, "max_new_tokens": 12, "pad_token_id": 0}
        found: Tensor = model.generate(**inputs, **settings)
        return found

    before = generate()
    with whorl.hf.install(model):
        assert torch.equal(before, generate())


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "t5"])
def test_static_caches(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 40, "left")
    inputs.pop("decoder_input_ids", None)
    model.generation_config.eos_token_id = None
    settings: dict[str, object] = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0}
    settings |= {"cache_implementation": "static", "disable_compile": True}
    before = model.generate(**inputs, **settings)
    with whorl.hf.install(model):
        assert torch.equal(before, model.generate(**inputs, **settings))


@pytest.mark.parametrize("kind", ["bloom", "mpt", "t5", "llama"])
@torch.no_grad()
def test_tokens_one_by_one(kind: str) -> None:
    """Each step of a cached model gives what the whole sequence gives."""
    model, inputs = build_model(kind), build_inputs(kind, 12)
    name = "decoder_input_ids" if kind in SEQ2SEQ else "input_ids"
    tokens = inputs.pop(name)
    with whorl.hf.install(model):
        whole = model(**inputs, **{name: tokens}).logits
        cache, steps = None, []
        for n in range(tokens.shape[1]):
            step = {name: tokens[:, n : n + 1], "past_key_values": cache, "use_cache": True}
            out = model(**inputs, **step)
            cache = out.past_key_values
            steps.append(out.logits)
    compare(whole, torch.cat(steps, 1))


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize(
    "kind", ["bloom", "falcon", "mpt", "gptj", *sorted({*ROTARY} - {*ENCODERS})]
)
@torch.no_grad()
def test_tokens_in_two_parts(kind: str, padding: str) -> None:
    """The second part of a prompt, or of a conversation, after the first in a cache."""
    model, inputs = build_model(kind), build_inputs(kind, 150, padding)
    tokens, mask = inputs["input_ids"], inputs.get("attention_mask")

    def run() -> Tensor:
        first = {} if mask is None else {"attention_mask": mask[:, :100]}
        cache = model(tokens[:, :100], use_cache=True, **first).past_key_values
        both = {} if mask is None else {"attention_mask": mask}
        logits: Tensor = model(tokens[:, 100:], past_key_values=cache, **both).logits
        return logits if mask is None else logits[mask[:, 100:].bool()]

    before = run()
    with whorl.hf.install(model):
        compare(before, run())


@pytest.mark.parametrize("settings", [{"prefill_chunk_size": 8}, {"prompt_lookup_num_tokens": 3}])
def test_generation_that_takes_several_tokens_at_once(settings: dict[str, Any]) -> None:
    model, inputs = build_model("llama"), build_inputs("llama", 30)
    model.generation_config.eos_token_id = None
    inputs = {"input_ids": inputs["input_ids"][:1]}
    settings = {**settings, "do_sample": False, "max_new_tokens": 10, "pad_token_id": 0}
    before = model.generate(**inputs, **settings)
    with whorl.hf.install(model):
        assert torch.equal(before, model.generate(**inputs, **settings))


@pytest.mark.parametrize("kind", ["gptj", "t5", "llama"])
@torch.no_grad()
def test_decoders_that_attend_both_ways(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 40, "left")
    causal = compute_logits(model, inputs)
    (model.decoder if kind == "t5" else model).config.is_causal = False
    before = compute_logits(model, inputs)
    assert not torch.equal(before, causal)
    with whorl.hf.install(model):
        compare(before, compute_logits(model, inputs))


@pytest.mark.parametrize("kind", ["bloom", "mpt"])
def test_a_bias_that_grows_is_for_causal_attention_only(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 10)
    with whorl.hf.install(model):
        model.config.is_causal = False
        with pytest.raises(
            ValueError, match=f"config.is_causal must be True for {kind} with whorl"
        ):
            model(**inputs)


@pytest.mark.parametrize("kind", ["mpt", "llama", "mistral"])
@pytest.mark.parametrize("form", ["numbers", "bool", "one row"])
@torch.no_grad()
def test_masks_of_the_caller(kind: str, form: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 24)
    visible = torch.ones(24, 24, dtype=torch.bool).tril().triu(-4).expand(2, 1, 24, 24)
    if form == "one row":
        visible = visible[:, :, -1:] if kind != "mpt" else visible
    mask = visible
    if form == "numbers" or kind == "mpt":  # MPT's own are True for hidden keys
        mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
    inputs["attention_mask"] = mask
    before = model(**inputs).logits
    with whorl.hf.install(model):
        compare(before, model(**inputs).logits)


def test_a_mask_of_mpt_that_hides_nothing_is_one_number() -> None:
    """So that no step of generation has to look through it; one that hides a key is a mask."""
    config = build_model("mpt").config
    sizes: dict[str, Any] = {"batch_size": 2, "q_length": 1, "kv_length": 9, "q_offset": 8}
    for given in (None, torch.ones(2, 9)):
        mask = build_mask(**sizes, config=config, attention_mask=given)
        assert mask is not None
        assert (mask.shape, mask.stride(1), bool(mask.any())) == ((1, 9), 0, False)
    given = torch.zeros(1, 1, dtype=torch.bool).expand(2, 9)  # hides all
    mask = build_mask(**sizes, config=config, attention_mask=given)
    assert mask is not None
    assert mask.stride(1) != 0
    assert bool(mask.all())


def test_windows_take_no_matrix() -> None:
    sizes: dict[str, Any] = {"batch_size": 2, "q_length": 7, "kv_length": 9, "q_offset": 2}
    for both_ways, make in (
        (False, masking_utils.sliding_window_causal_mask_function),
        (True, masking_utils.sliding_window_bidirectional_mask_function),
    ):
        sizes |= {"local_size": 3, "device": torch.device("cpu")}
        assert build_mask(**sizes, mask_function=make(3)) is None
        whole = build_mask(**sizes | {"kv_length": 12}, mask_function=make(3))  # room for more
        documents = masking_utils.packed_sequence_mask_function(torch.arange(9).expand(2, 9) // 4)
        packed = build_mask(**sizes, mask_function=masking_utils.and_masks(make(3), documents))
        assert packed is not None
        assert packed.shape == (2, 1, 7, 9)
        assert both_ways or (whole is not None and whole.shape == (2, 1, 7, 12))


@torch.no_grad()
def test_one_token_after_more_than_a_window() -> None:
    """In a cache that keeps all tokens."""
    model, tokens = build_model("mistral"), build_inputs("mistral", 120)["input_ids"]

    def run() -> Tensor:
        cache = DynamicCache()
        model(tokens[:, :-1], past_key_values=cache)
        logits: Tensor = model(tokens[:, -1:], past_key_values=cache).logits
        return logits

    before = run()
    with whorl.hf.install(model):
        compare(before, run())


@pytest.mark.parametrize("kind", ["t5", "umt5", "mpnet", "deberta", "deberta-v2", "xlnet", "bloom"])
def test_weights_of_a_functional_call(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 30)
    weights = {n: (p.detach() * 1.1).requires_grad_() for n, p in model.named_parameters()}

    def run() -> tuple[Tensor, dict[str, Tensor]]:
        logits = torch.func.functional_call(model, weights, (), inputs).logits
        grads = torch.autograd.grad(
            logits.square().mean(), list(weights.values()), allow_unused=True
        )
        return logits, {n: g for n, g in zip(weights, grads, strict=True) if g is not None}

    before, gradients = run()
    with whorl.hf.install(model):
        after, others = run()
    compare(before, after)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        compare(gradient, others[name])


@pytest.mark.parametrize(
    "kind", ["bloom", "mpt", "t5", "umt5", "xlnet", *WEIGHTS, "gptj", *ENCODERS]
)
@torch.no_grad()
def test_attention_weights(kind: str) -> None:
    model = build_model(kind)
    if kind in ("llama", "modernbert", *SEQ2SEQ):
        model.set_attn_implementation("eager")
    inputs = build_inputs(kind, 30, "left")
    before = model(**inputs, output_attentions=True)
    with whorl.hf.install(model):
        after = model(**inputs, output_attentions=True)
    names = ["attentions"]
    if kind in SEQ2SEQ:
        names = ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    for name in names:
        assert len(before[name]) == len(after[name]) == 2
        for one, other in zip(before[name], after[name], strict=True):
            # Row 1 has no padding: rows without a visible key mean nothing.
            compare(one[1], other[1])


@torch.no_grad()
def test_masks_of_numbers_are_added() -> None:
    model = build_model("bloom")
    visible = torch.ones(20, 20, dtype=torch.bool).tril().triu(-4)  # a window of five
    mask = torch.where(visible, 0.0, torch.finfo(torch.float32).min).expand(2, 1, 20, 20)
    with whorl.hf.install(model):
        layer = model.transformer.h[0].self_attention
        x = torch.randn(2, 20, 48, generator=torch.Generator().manual_seed(2))
        added, _ = layer(x, x, None, mask)
        masked, _ = layer(x, x, None, visible.expand(2, 1, 20, 20))
    compare(added, masked)


@pytest.mark.parametrize("kind", ["bloom", "t5", "llama"])
def test_gradient_checkpointing_and_autocast(kind: str) -> None:
    model, inputs = build_model(kind), add_labels(build_inputs(kind, LENGTH))
    model.train()
    with whorl.hf.install(model):
        model(**inputs).loss.backward()
        before = list_gradients(model)
        model.zero_grad()
        model.gradient_checkpointing_enable()
        model(**inputs, use_cache=False).loss.backward()
        for name, gradient in list_gradients(model).items():
            compare(before[name], gradient)
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(**inputs, use_cache=False).loss.item()
        assert rough == pytest.approx(model(**inputs, use_cache=False).loss.item(), rel=0.05)


@pytest.mark.parametrize("impl", ["native", "reference"])
@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gpt_oss", "cohere", "qwen2_vl", "gptj"])
@torch.no_grad()
def test_angles_of_each_implementation(kind: str, impl: whorl.Impl) -> None:
    """Asked for by name, whorl computes the angles, and they are those of transformers."""
    model, inputs = build_model(kind), build_inputs(kind, 100)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model, impl=impl) as installed:
        assert repr(installed) != repr(whorl.hf.Installation(model, installed.family, []))
        compare(before, compute_logits(model, inputs))
    if kind == "llama":
        with whorl.hf.install(model, impl=impl):
            (rotation,) = model.model.rotary_emb.rotations.values()
            assert (rotation.config.impl, rotation.config.precision) == (impl, "float32")
        model.model.rotary_emb = torch.nn.Identity()
        with pytest.raises(ValueError, match="has no module that computes cos and sin, so that pr"):
            whorl.hf.install(model, impl=impl)


@pytest.mark.parametrize("kind", [*ROTARY, "gptj"])
@torch.no_grad()
def test_exact_angles_change_little(kind: str) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 100)
    before = compute_logits(model, inputs)
    with whorl.hf.install(model, precision="float64") as installed:
        assert installed.changes
        after = compute_logits(model, inputs)
    assert not torch.equal(before, after)
    compare(before, after, 1e-3)


@torch.no_grad()
def test_the_rotation_of_the_config_as_an_encoding() -> None:
    """The same outputs, although attention rotates all tokens instead of the model."""
    for kind in ("llama", "qwen3", "olmo2", "gptj"):
        model, inputs = build_model(kind), build_inputs(kind, LENGTH, "left")
        before = compute_logits(model, inputs)
        with whorl.hf.install(model, whorl.RoPE.from_config(model.config, precision="float32")):
            compare(before, compute_logits(model, inputs))


@pytest.mark.parametrize("kind", ["llama", "gptj"])
@pytest.mark.parametrize(
    "encoding", [whorl.ALiBi(4), whorl.RoPE(12), whorl.T5Bias(4), whorl.Kerple(4)], ids=repr
)
def test_another_encoding_generates_as_it_scores(kind: str, encoding: whorl.Encoding) -> None:
    model, inputs = build_model(kind), build_inputs(kind, 20)
    model.generation_config.eos_token_id = None
    settings = {"do_sample": False, "max_new_tokens": 6, "pad_token_id": 0}
    with whorl.hf.install(model, encoding):
        grown = model.generate(**inputs, **settings)
        fixed = model.generate(
            **inputs, **settings, cache_implementation="static", disable_compile=True
        )
        whole = model(grown).logits.argmax(-1)
    assert torch.equal(grown, fixed)
    assert torch.equal(whole[:, 19:-1], grown[:, 20:])


@torch.no_grad()
def test_scaling_acts_as_in_the_config() -> None:
    plain, inputs = build_model("llama"), build_inputs("llama", 60)
    parameters = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    scaled = build_model("llama", rope_parameters=parameters)
    scaled.load_state_dict(plain.state_dict())
    with whorl.hf.install(plain, scaling=whorl.Linear(4.0)):
        compare(compute_logits(scaled, inputs), compute_logits(plain, inputs))
