"""Positions of new tokens where attention rotates the keys: gone by, or refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, StaticCache

import whorl
from whorl.hf import SinkCache, UnrotatedCache

from .models import build_inputs, build_model, compare, compute_logits
from .test_caches import DECODERS, generate

pytestmark = pytest.mark.slow


def build_cache(name: str, model: PreTrainedModel) -> Any:
    if name == "static":
        return StaticCache(config=model.config, max_cache_len=40)
    return DynamicCache(config=model.config)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("kind", ["llama", "gptj", "falcon", "mistral"])
@torch.no_grad()
def test_padding_between_tokens_is_counted_as_the_positions_say(kind: str, cache: str) -> None:
    """After right padding, ``generate`` skips it in positions, and a plain call does not."""
    model, inputs = build_model(kind, **DECODERS.get(kind, {})), build_inputs(kind, 30, "right")
    mask = torch.cat((inputs["attention_mask"], torch.ones(2, 4, dtype=torch.long)), 1)
    skipped = {"position_ids": (mask.cumsum(-1) - 1)[:, -4:]}
    beyond = {"position_ids": torch.arange(35, 39)[None]}

    def run(more: dict[str, Tensor]) -> Tensor:
        held = build_cache(cache, model)
        model(**inputs, past_key_values=held)
        tokens = inputs["input_ids"][:, :4]
        out: Tensor = model(tokens, attention_mask=mask, past_key_values=held, **more).logits
        return out

    before = [run({}), run(skipped)]
    assert not torch.allclose(before[0][0], before[1][0], atol=1e-3)
    with whorl.hf.install(model, keys="unrotated"):
        for one, more in zip(before, ({}, skipped), strict=True):
            compare(one, run(more))
        with pytest.raises(ValueError, match=r"got \[35\] first, after 30 tokens in the cache"):
            run(beyond)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@torch.no_grad()
def test_padding_inside_a_window_that_dropped_tokens(cache: str) -> None:
    """Whether it was counted is known only to a cache of whorl."""
    model, inputs = build_model("mistral", sliding_window=8), build_inputs("mistral", 20, "right")
    tokens, mask = inputs["input_ids"], torch.ones(2, 22).long()
    mask[0, 18:20] = 0
    skipped = {"position_ids": (mask.cumsum(-1) - 1)[:, -2:]}

    def run(held: Any) -> Tensor:
        model(**inputs, past_key_values=held)
        out = model(tokens[:, :2], attention_mask=mask, past_key_values=held, **skipped)
        found: Tensor = out.logits
        return found

    rows = [torch.cat((tokens[n, :end], tokens[n, :2])) for n, end in ((0, 18), (1, 20))]
    alone = [model(row[None]).logits[:, -2:] for row in rows]  # without padding
    whorl.hf.install(model, keys="unrotated")
    with pytest.raises(ValueError, match=r"attention_mask must not hide tokens between others, wi"):
        run(build_cache(cache, model))
    compare(torch.cat(alone), run(UnrotatedCache()))


@pytest.mark.parametrize("cache", [SinkCache, UnrotatedCache])
@torch.no_grad()
def test_a_gap_between_two_calls_is_noticed(cache: Any) -> None:
    model, inputs = build_model("llama"), build_inputs("llama", 12, "left")
    whorl.hf.install(model, keys="unrotated")
    tokens, held = inputs["input_ids"], cache()
    model(**inputs, past_key_values=held)
    for wrong in ([20, 21], [11, 12], [0, 1]):
        with pytest.raises(ValueError, match=rf"got \[{wrong[0]}\] first, after 12 tokens in"):
            model(tokens[:, :2], position_ids=torch.tensor([wrong]), past_key_values=held)
    expected = model(tokens[:, :2], past_key_values=held).logits  # they count on: 12, 13
    held.crop(-2)
    held.reorder_cache(torch.tensor([1, 0]))
    position_ids = torch.tensor([[12, 13]])
    again = model(tokens.flip(0)[:, :2], position_ids=position_ids, past_key_values=held).logits
    compare(expected, again.flip(0))
    held.batch_repeat_interleave(2)
    with pytest.raises(ValueError, match=r"got \[15, 15, 15, 15\] first, after 14 tokens in the c"):
        model(tokens[[0] * 4, :1], position_ids=torch.full((4, 1), 15), past_key_values=held)
    held.reset()
    model(tokens[:1], position_ids=torch.arange(5, 17)[None], past_key_values=held)


@pytest.mark.parametrize("cache", [SinkCache, UnrotatedCache, DynamicCache])
@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen3_vl"])
@torch.no_grad()
def test_a_gap_that_only_the_rotary_module_hears_of(kind: str, cache: Any) -> None:
    """These models hand no positions to attention, or those of text alone."""
    model, tokens = build_model(kind), build_inputs(kind, 14)["input_ids"]
    whorl.hf.install(model, keys="unrotated")
    other = build_model("llama")  # which says nothing about the positions of the first
    whorl.hf.install(other, keys="unrotated")
    for axes in (1, 3):
        held, places = cache(), torch.arange(20, 22).expand(axes, 2, -1)
        more = {"position_ids": places if axes > 1 else places[0], "past_key_values": held}
        model(tokens[:, :12], past_key_values=held)
        other(tokens)
        with pytest.raises(ValueError, match=r"got \[20, 20\] first, after 12 tokens in the cache"):
            model(tokens[:, 12:], **more)
    held = cache()
    model(tokens[:, :12], past_key_values=held)
    whole = model(tokens).logits[:, 12:]
    compare(whole, model(tokens[:, 12:], past_key_values=held).logits)


@pytest.mark.parametrize("kind", ["mpt", "roformer"])
@torch.no_grad()
def test_padding_that_counts(kind: str) -> None:
    """Where transformers counts padding between tokens, caches of whorl cannot, and say so."""
    more = DECODERS.get(kind, {})
    model, inputs = build_model(kind, **more), build_inputs(kind, 30, "middle")
    left = build_inputs(kind, 30, "left")
    before, stock = compute_logits(model, left), compute_logits(model, inputs)
    whorl.hf.install(model, keys="rotated" if kind == "mpt" else "unrotated")
    compare(stock, compute_logits(model, {**inputs, "past_key_values": DynamicCache()}))
    for cache in (SinkCache(), UnrotatedCache()):
        compare(before, compute_logits(model, {**left, "past_key_values": cache}))
        cache.reset()
        with pytest.raises(
            ValueError, match=r"got \[0\] first, .*, pad on the left, or call whorl"
        ):
            model(**inputs, past_key_values=cache)


@torch.no_grad()
def test_rows_with_other_first_positions_go_on_each_for_itself() -> None:
    """As ``generate`` counts under left padding; padding inside a prompt may be skipped."""
    model, inputs = build_model("llama"), build_inputs("llama", 20, "left")
    whorl.hf.install(model, keys="unrotated")
    mask = torch.cat((inputs["attention_mask"], torch.ones(2, 1, dtype=torch.long)), 1)
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    held = SinkCache()
    model(**inputs, position_ids=places[:, :-1], past_key_values=held)
    next_one = {"attention_mask": mask, "past_key_values": held}
    with pytest.raises(ValueError, match=r"got \[20\] first, after 20 tokens in the cache"):
        model(inputs["input_ids"][:, :1], **next_one)
    model(inputs["input_ids"][:, :1], position_ids=places[:, -1:], **next_one)
    assert held.layers[0].expected == [19, 21]


@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("padding", ["none", "left"])
@torch.no_grad()
def test_images_are_at_their_places(cache: str | None, padding: str) -> None:
    """Where tokens of an image see later ones, queries are still where they are."""
    model, inputs = build_model("gemma3"), build_inputs("gemma3", 30, padding)
    source = torch.Generator().manual_seed(3)
    inputs["pixel_values"] = torch.randn(2, 3, 16, 16, generator=source)
    inputs["input_ids"][:, 12:16] = 1
    inputs["token_type_ids"] = (inputs["input_ids"] == 1).long()

    def run() -> Tensor:
        text = model.model.language_model
        more = {} if cache is None else {"past_key_values": build_cache(cache, text)}
        return compute_logits(model, {**inputs, **more})

    before = run()
    with whorl.hf.install(model, keys="unrotated"):
        compare(before, run())


@torch.no_grad()
def test_masks_of_numbers_that_hide_nothing_leave_positions() -> None:
    model, tokens = build_model("llama"), build_inputs("llama", 10)["input_ids"]
    mask = torch.zeros(2, 1, 10, 10)
    before = model(tokens, attention_mask=mask).logits
    with whorl.hf.install(model, keys="unrotated"):
        compare(before, model(tokens, attention_mask=mask).logits)


@torch.no_grad()
def test_packed_rows_of_a_mask_of_the_caller() -> None:
    """Each text counts for itself; in between, positions that a token sees must be its own."""
    model, tokens = build_model("llama"), build_inputs("llama", 12)["input_ids"][:1]
    texts = torch.tensor([0] * 5 + [1] * 7)
    mask = (texts[:, None] == texts).tril()[None, None]
    packed = torch.cat((torch.arange(5), torch.arange(7)))[None]
    before = model(tokens, attention_mask=mask, position_ids=packed).logits
    whorl.hf.install(model, keys="unrotated")
    compare(before, model(tokens, attention_mask=mask, position_ids=packed).logits)
    causal = torch.ones(1, 1, 12, 12, dtype=torch.bool).tril()
    with pytest.raises(ValueError, match=r"position_ids must count tokens one by one with encodi"):
        model(tokens, attention_mask=causal, position_ids=packed)


@torch.no_grad()
def test_positions_that_do_not_go_on_are_refused() -> None:
    model, tokens = build_model("llama"), build_inputs("llama", 12)["input_ids"]
    whorl.hf.install(model, keys="unrotated")
    cache = model(tokens[:, :8], use_cache=True).past_key_values
    with pytest.raises(ValueError, match=r"and go on where those in.*got \[20\] first, after 8 to"):
        model(tokens[:, 8:], position_ids=torch.arange(20, 24)[None], past_key_values=cache)


@pytest.mark.parametrize("kind", ["llama", "gptj", "mistral", "qwen2_vl"])
@pytest.mark.parametrize("cache", [None, SinkCache])
@torch.no_grad()
def test_packed_rows_that_attention_does_not_know_of(kind: str, cache: Any) -> None:
    """With a mask transformers does not split rows, and the positions alone cannot be kept."""
    model, tokens = build_model(kind), build_inputs(kind, 12)["input_ids"][:1]
    whorl.hf.install(model, keys="unrotated")
    packed = torch.cat((torch.arange(5), torch.arange(7)))[None]
    more: dict[str, Any] = {} if cache is None else {"past_key_values": cache()}
    with pytest.raises(ValueError, match=r"position_ids must count tokens one by one with encodi"):
        model(tokens, position_ids=packed, attention_mask=torch.ones_like(tokens), **more)


@pytest.mark.parametrize("kind", ["llama", "gptj", "mistral"])
@torch.no_grad()
def test_generation_after_right_padding_is_refused(kind: str) -> None:
    """transformers counts on from the padding there, where positions repeat."""
    model, inputs = build_model(kind), build_inputs(kind, 20, "right")
    whorl.hf.install(model, keys="unrotated")
    with pytest.raises(ValueError, match=r"must count tokens one by one.*got \[1, 20\] first, aft"):
        generate(model, inputs, max_new_tokens=2)
