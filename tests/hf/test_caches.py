"""Caches of unrotated keys: streams with sinks, and frequencies that follow the length."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

import whorl
from whorl.hf import SinkCache, UnrotatedCache, splice

from .models import ROTARY, build_inputs, build_model, compare, compute_logits

pytestmark = pytest.mark.slow

SINKS, WINDOW = 2, 8
#: All that rotate but ModernBERT, which generates nothing.
STREAMING = [*(kind for kind in ROTARY if kind != "modernbert"), "falcon", "gptj", "roformer"]
#: What makes these two decoders that rotate.
DECODERS: dict[str, dict[str, Any]] = {"falcon": {"alibi": False}, "roformer": {"is_decoder": True}}


def stream(model: PreTrainedModel, tokens: Tensor, cache: SinkCache, size: int = 1) -> Tensor:
    """Logits of tokens [B, T] that are fed ``size`` at a time."""
    parts = [model(part, past_key_values=cache).logits for part in tokens.split(size, 1)]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("kind", [*STREAMING, "bloom", "mpt"])
@torch.no_grad()
def test_streams_count_positions_inside_the_cache(kind: str) -> None:
    """In one layer a token gives what it gives at the end of sinks and window alone."""
    names = {"gptj": "n_layer", "bloom": "n_layer", "mpt": "n_layers"}
    more = dict(DECODERS.get(kind, {}))
    if kind.startswith("gemma3"):
        more["layer_types"] = ["full_attention"]
    if kind == "roformer":  # fewer positions in its table than tokens in the stream
        more["max_position_embeddings"] = 16
    model = build_model(kind, **{names.get(kind, "num_hidden_layers"): 1}, **more)
    tokens = build_inputs(kind, 24)["input_ids"]
    expected = [
        model(torch.cat((tokens[:, :SINKS], tokens[:, n - WINDOW + 1 : n + 1]), 1)).logits[:, -1]
        for n in range(SINKS + WINDOW - 1, 24)
    ]
    with whorl.hf.install(model, keys="rotated" if kind in ("bloom", "mpt") else "unrotated"):
        found = stream(model, tokens, SinkCache(sinks=SINKS, window=WINDOW))
    compare(torch.stack(expected, 1), found[:, SINKS + WINDOW - 1 :])


@pytest.mark.parametrize("kind", STREAMING)
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@torch.no_grad()
def test_a_text_that_fits_is_as_in_transformers(kind: str, padding: str) -> None:
    model, inputs = build_model(kind, **DECODERS.get(kind, {})), build_inputs(kind, 40, padding)
    before = compute_logits(model, inputs)
    whorl.hf.install(model, keys="unrotated")
    compare(before, compute_logits(model, inputs), 1e-5)
    compare(before, compute_logits(model, {**inputs, "past_key_values": SinkCache(window=40)}))


@torch.no_grad()
def test_layers_with_a_window_of_their_own_stay_as_they_are() -> None:
    model = build_model("mistral", sliding_window=6)
    tokens = build_inputs("mistral", 30)["input_ids"]
    before = model(tokens).logits
    whorl.hf.install(model, keys="unrotated")
    compare(before, stream(model, tokens, SinkCache(sinks=2, window=6), size=7))
    assert not torch.allclose(before, stream(model, tokens, SinkCache(sinks=2, window=5)))


@torch.no_grad()
def test_a_prompt_longer_than_the_window() -> None:
    """It is taken in as its tokens would be one by one: here by one, as the window is small."""
    model, tokens = build_model("llama"), build_inputs("llama", 30)["input_ids"]
    whorl.hf.install(model, keys="unrotated")
    one, other = SinkCache(sinks=2, window=4), SinkCache(sinks=2, window=4)
    compare(stream(model, tokens, one), stream(model, tokens, other, size=27))
    assert one.get_seq_length() == other.get_seq_length() == 30


def generate(model: PreTrainedModel, inputs: dict[str, Tensor], **settings: object) -> Tensor:
    settings = {"do_sample": False, "max_new_tokens": 20, "pad_token_id": 0, **settings}
    found: Tensor = model.generate(**inputs, **settings)
    return found[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("beams", [1, 3])
def test_generated_text(beams: int) -> None:
    """As transformers gives it while nothing is dropped; later, rows do not know each other."""
    model, inputs = build_model("llama"), build_inputs("llama", 40, "left")
    model.generation_config.eos_token_id = None
    before = generate(model, inputs, num_beams=beams)
    whorl.hf.install(model, keys="unrotated")
    cache = SinkCache(sinks=4, window=64)
    assert torch.equal(before, generate(model, inputs, num_beams=beams, past_key_values=cache))
    cache = SinkCache(sinks=SINKS, window=WINDOW)
    both = generate(model, inputs, num_beams=beams, past_key_values=cache)
    alone = {"input_ids": inputs["input_ids"][:1, 4:]}  # without its padding
    cache = SinkCache(sinks=SINKS, window=WINDOW)
    assert torch.equal(both[:1], generate(model, alone, num_beams=beams, past_key_values=cache))
    assert not torch.equal(before, both)


@pytest.mark.parametrize("cache", [UnrotatedCache, lambda: SinkCache(window=64)])
def test_tokens_of_an_assistant_are_taken_back(cache: Any) -> None:
    model, assistant = build_model("llama"), build_model("llama", std=0.19)
    inputs = {"input_ids": build_inputs("llama", 12)["input_ids"][:1]}
    model.generation_config.eos_token_id = None
    before = generate(model, inputs)
    whorl.hf.install(model, keys="unrotated")
    found = generate(model, inputs, assistant_model=assistant, past_key_values=cache())
    assert torch.equal(before, found)


@torch.no_grad()
def test_memory_stays_and_the_last_tokens_can_be_taken_back() -> None:
    model, tokens = build_model("llama"), build_inputs("llama", 120)["input_ids"]
    whorl.hf.install(model, keys="unrotated")
    cache = SinkCache(sinks=SINKS, window=WINDOW)
    stream(model, tokens[:, :60], cache)
    memory = cache.memory
    before = stream(model, tokens[:, 60:], cache)
    assert cache.memory == memory
    cache.crop(-1)
    cache.crop(0)
    assert cache.get_seq_length() == 119
    compare(before[:, -1:], stream(model, tokens[:, -1:], cache))
    cache.reset()
    compare(model(tokens[:, :WINDOW]).logits, stream(model, tokens[:, :WINDOW], cache))
    assert repr(cache) == "SinkCache(window=8, sinks=2)"


@torch.no_grad()
def test_what_is_refused() -> None:
    inputs = build_inputs("llama", 12)
    llama, bloom = build_model("llama"), build_model("bloom")
    for model in (llama, bloom):
        with pytest.raises(ValueError, match=r"call whorl\.hf\.install\(model, keys='unrotated'\)"):
            model(**inputs, past_key_values=SinkCache())
    with (
        whorl.hf.install(llama),
        pytest.raises(ValueError, match=r"this cache holds unrotated keys, which the model"),
    ):
        llama(**inputs, past_key_values=SinkCache())
    with pytest.raises(
        ValueError, match=r"keys must be 'rotated' for BLOOM, which does not rotate"
    ):
        whorl.hf.install(bloom, keys="unrotated")
    with pytest.raises(ValueError, match=r"keys must be one of rotated, unrotated; got 'raw'"):
        whorl.hf.install(llama, keys="raw")  # type: ignore[arg-type]
    whorl.hf.install(llama, keys="unrotated")
    with pytest.raises(ValueError, match=r"attention_mask must say which tokens are padding.*12\]"):
        llama(
            inputs["input_ids"],
            attention_mask=torch.ones(2, 1, 12, 12, dtype=torch.bool),
            past_key_values=SinkCache(),
        )
    with pytest.raises(ValueError, match=r"position_ids must count tokens one by one with encodi"):
        llama(inputs["input_ids"], position_ids=2 * torch.arange(12)[None])
    with pytest.raises(ValueError, match=r"output_attentions must be False with this cache"):
        llama(**inputs, output_attentions=True, past_key_values=SinkCache())
    cache = SinkCache()
    llama(**inputs, past_key_values=cache)
    with pytest.raises(ValueError, match=r"tokens_to_remove must be 0 or negative.*got 3"):
        cache.crop(3)
    for cache in (SinkCache(sinks=2, window=8), SinkCache(sinks=2, window=4)):
        stream(llama, inputs["input_ids"], cache)
        with pytest.raises(ValueError, match=r"no more than the last call added.*\(assistant_mod"):
            cache.crop(-4)


@torch.no_grad()
def test_a_cache_stays_with_what_filled_it() -> None:
    model, inputs, cache = build_model("llama"), build_inputs("llama", 12), SinkCache()
    with whorl.hf.install(model, keys="unrotated"):
        model(**inputs, past_key_values=cache)
    whorl.hf.install(model, keys="unrotated", scaling=whorl.Linear(4.0))
    with pytest.raises(ValueError, match="a cache must stay with the model that filled it"):
        model(**inputs, past_key_values=cache)
    cache.reset()
    again = model(**inputs, past_key_values=cache).logits
    compare(again, model(**inputs, past_key_values=SinkCache()).logits)


@torch.no_grad()
def test_tokens_are_not_left_unrotated() -> None:
    model, inputs = build_model("llama"), build_inputs("llama", 12)
    whorl.hf.install(model, keys="unrotated")
    for wrong in (torch.arange(12).flip(0), torch.arange(12) // 2):
        with pytest.raises(ValueError, match="got some that skip or repeat positions"):
            model(inputs["input_ids"], position_ids=wrong[None])
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="the attention implementation must stay 'whorl'"):
        model(**inputs)
    with pytest.raises(
        ValueError, match="keys must be 'rotated' for RoFormer with rotary_value, w"
    ):
        whorl.hf.install(build_model("roformer", rotary_value=True), keys="unrotated")


@torch.no_grad()
def test_a_stream_through_falcon_with_alibi() -> None:
    """With the exact bias, which is known by the distance."""
    model, tokens = build_model("falcon", num_hidden_layers=1), build_inputs("falcon", 24)
    exact = whorl.ALiBi(6, slope_scale=8**-0.5)
    ends = torch.cat((tokens["input_ids"][:, :SINKS], tokens["input_ids"][:, -WINDOW:]), 1)
    with whorl.hf.install(model, exact):
        expected = model(ends).logits[:, -1]
        found = stream(model, tokens["input_ids"], SinkCache(sinks=SINKS, window=WINDOW))
    compare(expected, found[:, -1])
    with (
        whorl.hf.install(model),
        pytest.raises(ValueError, match="SinkCache counts positions itself, and transformers' ro"),
    ):
        model(**tokens, past_key_values=SinkCache())


@pytest.mark.parametrize("kind", ["deepseek_v3", "falcon", "roformer"])
def test_generated_text_of_unrotated_keys(kind: str) -> None:
    """Of models that change more than masks for it, in caches of transformers and of whorl."""
    model, inputs = build_model(kind, **DECODERS.get(kind, {})), build_inputs(kind, 30, "left")
    model.generation_config.eos_token_id = None
    before = generate(model, inputs, num_beams=2)
    with whorl.hf.install(model, keys="unrotated"):
        assert torch.equal(before, generate(model, inputs, num_beams=2))
        for cache in (SinkCache(window=64), UnrotatedCache()):
            found = generate(model, inputs, num_beams=2, past_key_values=cache)
            assert torch.equal(before, found)
    assert torch.equal(before, generate(model, inputs, num_beams=2))


@pytest.mark.parametrize("encoding", [None, whorl.T5Bias(4)], ids=repr)
@torch.no_grad()
def test_copies_of_a_cache(encoding: whorl.Encoding | None) -> None:
    """As a prompt that many texts begin with is read once, and its cache copied for each."""
    model, tokens = build_model("llama"), build_inputs("llama", 30)["input_ids"]
    whorl.hf.install(model, encoding, keys="unrotated")
    for cache in (SinkCache(sinks=SINKS, window=WINDOW), UnrotatedCache()):
        model(tokens[:, :20], past_key_values=cache)
        copied, pickled = copy.deepcopy(cache), pickle.loads(pickle.dumps(cache))
        expected = stream(model, tokens[:, 20:], cache)
        for other in (copied, pickled):
            compare(expected, stream(model, tokens[:, 20:], other), 0.0)
    if encoding is not None:
        model(tokens, past_key_values=cache)
        encoding.get_parameter("weight").mul_(2)
        model(tokens[:, :1], past_key_values=cache)  # the same object, whatever its numbers
        with pytest.raises(ValueError, match="a cache must stay with the model that filled it"):
            model(tokens[:, :1], past_key_values=copied)


# A model whose frequencies change past 8 tokens, at every token or once.
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 6,
    "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 4.0],
    "factor": 4.0,
}


def build_dynamic(kind: str) -> PreTrainedModel:
    if kind == "dynamic":
        return build_model("llama", max_position_embeddings=8, rope_parameters=DYNAMIC)
    lengths = {"max_position_embeddings": 32, "original_max_position_embeddings": 8}
    return build_model("phi3", rope_parameters=LONG, **lengths)


class LayerRecord:
    """What the attention of each layer multiplied and gave, recorded by hooks."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.heads, self.groups, self.width = 4, 2, 12
        self.parts: dict[tuple[int, str], list[Tensor]] = {}
        for n, layer in enumerate(model.model.layers):
            attention = layer.self_attn
            for name in ("q_proj", "k_proj", "v_proj", "qkv_proj"):
                if hasattr(attention, name):
                    getattr(attention, name).register_forward_hook(self._make_hook(n, name))
            attention.o_proj.register_forward_hook(self._make_hook(n, "out"))

    def _make_hook(self, layer: int, name: str) -> Any:
        def record(_: object, inputs: tuple[Tensor], output: Tensor) -> None:
            x = inputs[0] if name == "out" else output
            self.parts.setdefault((layer, name), []).append(x)

        return record

    def read(self, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v of all tokens, and the output of the last: [B, H, T, D]."""
        out = self.parts[layer, "out"][-1].unflatten(-1, (self.heads, self.width)).transpose(1, 2)
        if (layer, "qkv_proj") in self.parts:
            sizes = [self.heads * self.width, *[self.groups * self.width] * 2]
            all_three = torch.cat(self.parts[layer, "qkv_proj"], 1).split(sizes, -1)
        else:
            names = ("q_proj", "k_proj", "v_proj")
            all_three = tuple(torch.cat(self.parts[layer, name], 1) for name in names)
        q, k, v = (x.unflatten(-1, (-1, self.width)).transpose(1, 2) for x in all_three)
        return q, k, v, out[:, :, -1:]


def attend_afresh(record: LayerRecord, layer: int, rope: Any, mask: Tensor, lengths: Tensor) -> Any:
    """The largest error of the last token in a layer, against all keys rotated afresh."""
    q, k, v, out = record.read(layer)
    places = torch.arange(k.shape[2])
    q, k = rope(q[:, :, -1:], k, places[-1:], places, context_length=lengths)
    scores = (q @ k.repeat_interleave(2, 1).mT) * 12**-0.5
    weights = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
    return float((weights @ v.repeat_interleave(2, 1) - out).abs().max())


@pytest.mark.parametrize("cache", ["transformers", "exact", "stepped"])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
@torch.no_grad()
def test_frequencies_are_those_of_the_present_length(kind: str, cache: str) -> None:
    """In each layer, of each row, against rotating all unrotated keys afresh."""
    model, inputs = build_dynamic(kind), build_inputs("llama", 20, "left")
    rope = whorl.read_config(model.config).build(precision="float32")
    inputs["attention_mask"][0, :5] = 0
    whorl.hf.install(model, keys="unrotated")
    record = LayerRecord(model)
    held: Any = DynamicCache(config=model.config)
    if cache != "transformers":
        held = UnrotatedCache(frequencies=cache, steps=4)  # type: ignore[arg-type]
    for part in (slice(0, 6), *[slice(n, n + 1) for n in range(6, 20)]):
        mask = inputs["attention_mask"][:, : part.stop].bool()
        model(inputs["input_ids"][:, part], attention_mask=mask.long(), past_key_values=held)
        lengths = mask.sum(-1)
        if cache == "stepped":  # the next of 4 lengths for each doubling, past the 8 of training
            lengths = torch.tensor([n if n <= 8 else n + n % 2 for n in lengths.tolist()])
            lengths = torch.where(lengths > 16, (lengths + 3) // 4 * 4, lengths)
        for layer in range(2):
            assert attend_afresh(record, layer, rope, mask, lengths) < 1e-5, (part, layer)


def test_a_text_that_is_run_again() -> None:
    """Where it was run again it goes on as if it had been the prompt."""
    model, tokens = build_dynamic("dynamic"), build_inputs("llama", 6)["input_ids"][:1]
    model.generation_config.eos_token_id = None
    whorl.hf.install(model, keys="unrotated")
    settings: dict[str, Any] = {"do_sample": False, "pad_token_id": 0}
    found = whorl.hf.generate_recomputed(model, tokens, max_new_tokens=14, lengths=[12], **settings)
    first = model.generate(tokens, max_new_tokens=6, past_key_values=UnrotatedCache(), **settings)
    mask = torch.ones_like(first)
    cache = UnrotatedCache()
    settings |= {"attention_mask": mask, "past_key_values": cache}
    assert torch.equal(found, model.generate(first, max_new_tokens=8, **settings))
    model.generation_config.eos_token_id = int(found[0, 8])
    for length in (12, 9):  # the text ends before, and just there
        short = whorl.hf.generate_recomputed(model, tokens, max_new_tokens=14, lengths=[length])
        assert short.shape == (1, 9)
    with pytest.raises(ValueError, match="num_return_sequences cannot be set"):
        whorl.hf.generate_recomputed(
            model, tokens, max_new_tokens=1, lengths=[], num_return_sequences=2
        )
    with pytest.raises(ValueError, match=r"input_ids must be one row \[1, T\], without beams"):
        whorl.hf.generate_recomputed(model, tokens[0], max_new_tokens=1, lengths=[])


def read(model: PreTrainedModel, tokens: Tensor) -> DynamicCache:
    cache = DynamicCache()
    model(tokens, past_key_values=cache)
    return cache


@pytest.mark.parametrize("kind", ["llama", "gpt_neox", "cohere", "deepseek_v3"])
@torch.no_grad()
def test_fragments_are_exact_in_one_layer(kind: str) -> None:
    model = build_model(kind, num_hidden_layers=1)
    first, document, rest = build_inputs(kind, 40)["input_ids"].split([9, 20, 11], 1)
    before = model(torch.cat((first, document[:, 3:], rest), 1)).logits[:, -11:]
    with whorl.hf.install(model, keys="unrotated"):
        fragments = [read(model, first), (read(model, document), slice(3, None))]
        cache = splice(model, fragments)
        assert cache.get_seq_length() == 26
        compare(before, model(rest, past_key_values=cache).logits)
        model(rest, past_key_values=fragments[0])
        assert splice(model, fragments).get_seq_length() == 37  # fragments can be used again
        other = splice(model, fragments[::-1])
        assert not torch.allclose(before, model(rest, past_key_values=other).logits)


@torch.no_grad()
def test_fragments_that_are_refused() -> None:
    model, tokens = build_model("mistral", sliding_window=6), build_inputs("llama", 12)["input_ids"]
    with pytest.raises(ValueError, match=r"must cache unrotated keys; MistralForCausalLM does not"):
        splice(model, [read(model, tokens)])
    whorl.hf.install(model, keys="unrotated")
    shallow = build_model("mistral", num_hidden_layers=1)
    for wrong in (read(model, tokens[:1]), read(shallow, tokens)):
        with pytest.raises(ValueError, match="each of the 2 layers of the model and of the same n"):
            splice(model, [read(model, tokens), wrong])
    with pytest.raises(TypeError, match="fragments must be a list of caches; got one cache"):
        splice(model, read(model, tokens))
    with pytest.raises(ValueError, match="must have tokens; slice"):
        splice(model, [(read(model, tokens), slice(50, None))])
    with pytest.raises(TypeError, match=r"a fragment must be the DynamicCache that the model fill"):
        splice(model, [SinkCache()])
    with pytest.raises(ValueError, match=r"must hold all tokens of a fragment; DynamicSlidingWind"):
        splice(model, [model(tokens, use_cache=True).past_key_values])
