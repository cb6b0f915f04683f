"""``evaluate_methods``: losses against plain forward passes, resumption, and what it refuses."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("transformers")

from transformers import T5Config, T5ForConditionalGeneration

from tests.peers import needs_transformers_5
from whorl.configs import read_config
from whorl.extend.evaluation import (
    EvaluationProgress,
    ExtensionTest,
    LoadedModel,
    evaluate_methods,
    load_model,
)
from whorl.extend.evaluation.losses import compute_scores_of_text, compute_window_losses
from whorl.extend.evaluation.reserved import make_cache
from whorl.extend.evaluation.resources import count_cache_bytes
from whorl.extend.evaluation.rotations import (
    compute_frequencies,
    find_rotary_modules,
    select_group,
    use_frequencies,
)
from whorl.extend.evaluation.settings import choose_lengths, cut_windows
from whorl.scaling import DynamicNTK, YaRN

from .weights import TEXT, build_llama, save_llama

pytestmark = needs_transformers_5

SMALL = ExtensionTest(methods=("linear", "yarn"), windows=2, scored=16, texts=0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_model(save_llama(tmp_path_factory.mktemp("llama") / "tiny"))


def compute_plain(model: Any, tokens: Tensor, first: int) -> Tensor:
    """Losses from one forward pass over the whole text, without a cache."""
    with torch.no_grad():
        logits = model(tokens[None, :-1], use_cache=False).logits[0]
    return F.cross_entropy(logits, tokens[1:], reduction="none")[first:]


@pytest.mark.parametrize(("length", "first"), [(40, 0), (40, 39), (1100, 0), (1100, 700)])
def test_chunks_give_the_losses_of_one_pass(loaded: LoadedModel, length: int, first: int) -> None:
    tokens = torch.randint(256, (length + 1,), generator=torch.Generator().manual_seed(1))
    found = compute_scores_of_text(loaded.model, tokens, first)
    assert found.losses.shape == (length - first,)
    torch.testing.assert_close(
        found.losses, compute_plain(loaded.model, tokens, first), rtol=1e-4, atol=1e-4
    )


def test_a_large_vocabulary_is_scored_in_smaller_chunks(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = torch.randint(256, (101,), generator=torch.Generator().manual_seed(1))
    whole = compute_scores_of_text(loaded.model, tokens, 10)
    sizes: list[int] = []
    hook = loaded.model.register_forward_hook(lambda *given: sizes.append(given[2].logits.shape[1]))
    monkeypatch.setattr("whorl.extend.evaluation.losses._MOST_LOGITS", 256 * 40)
    found = compute_scores_of_text(loaded.model, tokens, 10)
    hook.remove()
    assert sizes == [1, 40, 40, 10]
    torch.testing.assert_close(found.losses, whole.losses, rtol=1e-4, atol=1e-4)


def test_keys_and_values_are_reserved_at_once(loaded: LoadedModel) -> None:
    cache = make_cache(loaded.model, 40)
    assert cache is not None
    with torch.no_grad():
        loaded.model(torch.ones(1, 8, dtype=torch.long), past_key_values=cache)
        first = cache.layers[0].keys.data_ptr()
        loaded.model(torch.ones(1, 32, dtype=torch.long), past_key_values=cache)
    assert cache.layers[0].keys.data_ptr() == first
    assert cache.layers[0].keys.shape == (1, 2, 40, 8)
    assert make_cache(torch.nn.Linear(2, 2), 40) is None


def test_key_heads_are_not_copied_for_their_queries(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four heads share two key heads; transformers copies those for every chunk that has a mask."""
    tokens = torch.randint(256, (101,), generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr("whorl.extend.evaluation.losses._CHUNK", 40)
    model = build_llama()
    before = compute_scores_of_text(model, tokens, 10)
    copied: list[int] = []

    def repeat(states: Tensor, times: int) -> Tensor:
        copied.append(times)
        return states.repeat_interleave(times, 1)

    monkeypatch.setattr("transformers.integrations.sdpa_attention.repeat_kv", repeat)
    compute_scores_of_text(model, tokens, 10)
    assert copied  # as transformers does by itself
    copied.clear()
    found = compute_scores_of_text(loaded.model, tokens, 10)
    assert not copied
    torch.testing.assert_close(found.losses, before.losses, rtol=1e-5, atol=1e-5)
    with torch.no_grad():  # several texts with a mask are left to transformers
        both = [each(tokens.expand(2, -1), torch.ones(2, 101)) for each in (loaded.model, model)]
    torch.testing.assert_close(both[0].logits, both[1].logits, rtol=1e-5, atol=1e-5)


def test_right_tokens_are_the_most_probable_ones(loaded: LoadedModel) -> None:
    tokens = torch.randint(256, (30,), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        best = loaded.model(tokens[None]).logits[0, -1].argmax()
    found = compute_scores_of_text(loaded.model, torch.cat((tokens, best[None])), 29)
    assert found.right.tolist() == [True]
    found = compute_scores_of_text(loaded.model, torch.cat((tokens, (best[None] + 1) % 256)), 29)
    assert found.right.tolist() == [False]


@pytest.mark.parametrize("scored", [8, 13])
def test_a_sliding_window_reads_the_last_tokens_only(loaded: LoadedModel, scored: int) -> None:
    tokens = torch.randint(256, (101,), generator=torch.Generator().manual_seed(3))
    found = compute_window_losses(loaded.model, tokens, 100 - scored, 24)
    step = -(-scored // 4)
    for n in range(scored):
        end = min(100, 100 - scored + (n // step + 1) * step)
        target = 100 - scored + n + 1
        slow = compute_plain(loaded.model, tokens[end - 24 : target + 1], target - 1 - (end - 24))
        torch.testing.assert_close(found[n], slow[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scaling", "parameters"),
    [
        (YaRN(4.0, 64), {"rope_type": "yarn", "factor": 4.0}),
        (DynamicNTK(2.0, 64), {"rope_type": "dynamic", "factor": 2.0}),
    ],
)
def test_frequencies_are_those_of_a_config_with_the_scaling(
    loaded: LoadedModel, scaling: Any, parameters: dict[str, Any]
) -> None:
    original = {"original_max_position_embeddings": 64} if "yarn" in parameters.values() else {}
    rope = {"rope_theta": 10_000.0, **original, **parameters}
    other = build_llama(rope_parameters=rope)
    tokens = torch.randint(256, (201,), generator=torch.Generator().manual_seed(4))
    group = select_group(read_config(loaded.model.config.to_dict()))  # type: ignore[union-attr, operator]
    modules = find_rotary_modules(loaded.model, 4)
    before = [module.inv_freq for module in modules]
    plain = compute_plain(loaded.model, tokens, 0)
    with use_frequencies(modules, compute_frequencies(group, scaling, 200)):
        found = compute_plain(loaded.model, tokens, 0)
    torch.testing.assert_close(found, compute_plain(other, tokens, 0), rtol=1e-3, atol=1e-3)
    assert float((found - plain).abs().max()) > 0.01  # the scaling does something
    assert all(a is b.inv_freq for a, b in zip(before, modules, strict=True))
    assert torch.equal(compute_plain(loaded.model, tokens, 0), plain)


def test_a_config_that_follows_the_length_can_be_replaced(tmp_path: Path) -> None:
    """transformers would compute the frequencies of a dynamic scaling again."""
    rope = {"rope_theta": 10_000.0, "rope_type": "dynamic", "factor": 2.0}
    model = build_llama(rope_parameters=rope)
    tokens = torch.randint(256, (201,), generator=torch.Generator().manual_seed(5))
    group = select_group(read_config(build_llama().config.to_dict()))
    with use_frequencies(find_rotary_modules(model, 4), compute_frequencies(group, None, 200)):
        found = compute_plain(model, tokens, 0)
    torch.testing.assert_close(found, compute_plain(build_llama(), tokens, 0), rtol=1e-4, atol=1e-4)


def test_a_document(loaded: LoadedModel) -> None:
    found = evaluate_methods(loaded, TEXT, to="4x", test=SMALL)
    assert (found["trained"], found["target"]) == (64, 256)
    assert found["lengths"] == [32, 64, 128, 256]
    assert {row["name"] for row in found["rows"]} == {"none", "linear", "yarn", "sliding_window"}
    rows = {row["name"]: row for row in found["rows"]}
    windows = cut_windows(loaded.encode(TEXT), [], 256, 2)
    for length in (32, 64, 128, 256):
        slow = [compute_plain(loaded.model, row[-length - 1 :], length - 16) for row in windows]
        expected = float(torch.stack(slow).mean())
        assert rows["none"]["by_length"][str(length)]["loss"] == pytest.approx(expected, rel=1e-4)
    whole = torch.stack([compute_plain(loaded.model, row, 0) for row in windows])
    curve = rows["none"]["by_position"]
    assert curve["end"] == [8.0 * n for n in range(1, 33)]
    assert curve["loss"] == pytest.approx(whole.view(2, 32, 8).mean((0, 2)).tolist(), rel=1e-4)
    assert rows["sliding_window"]["by_length"]["64"] == rows["none"]["by_length"]["64"]
    assert rows["sliding_window"]["by_length"]["256"] != rows["none"]["by_length"]["256"]


def test_a_stopped_evaluation_goes_on(loaded: LoadedModel, tmp_path: Path) -> None:
    whole = evaluate_methods(loaded, TEXT, to="4x", test=SMALL)
    labels: list[str] = []

    def stop(moment: EvaluationProgress) -> None:
        labels.append(moment.label)
        if len(labels) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path, progress=stop)
    rest: list[EvaluationProgress] = []
    found = evaluate_methods(
        loaded, TEXT, to="4x", test=SMALL, folder=tmp_path, progress=rest.append
    )
    assert found == whole
    done = set(labels[:4])
    assert not done & {moment.label for moment in rest}
    assert rest[-1].done == rest[-1].total
    again: list[EvaluationProgress] = []
    evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path, progress=again.append)
    assert again == []


def test_results_of_other_settings_are_refused(loaded: LoadedModel, tmp_path: Path) -> None:
    tiny = ExtensionTest(methods=("yarn",), windows=1, scored=8, texts=0)
    evaluate_methods(loaded, TEXT, to="2x", test=tiny, folder=tmp_path)
    message = r"results\.json' has results of other settings: target is 128 there, 256 here\."
    with pytest.raises(ValueError, match=message):
        evaluate_methods(loaded, TEXT, to="4x", test=tiny, folder=tmp_path)
    found = evaluate_methods(loaded, TEXT, to="4x", test=tiny, folder=tmp_path, force=True)
    assert found["target"] == 256
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace('"target"', '"tarqet"', 1))
    with pytest.raises(ValueError, match=r"results\.json has been changed since it was written"):
        evaluate_methods(loaded, TEXT, to="4x", test=tiny, folder=tmp_path)


def test_lengths() -> None:
    assert choose_lengths(8192, 16_384) == [4096, 8192, 16_384]
    assert choose_lengths(8192, 12_000) == [4096, 8192, 12_000]


def test_windows_do_not_overlap() -> None:
    found = cut_windows(list(range(100)), [7], 20, 4)
    assert found.shape == (4, 21)
    assert found[:, 0].tolist() == [7] * 4
    flat = found[:, 1:].flatten().tolist()
    assert len(set(flat)) == 80
    assert flat == sorted(flat)
    assert cut_windows(list(range(45)), [], 20, 4)[:, 0].tolist() == [0, 23]
    assert cut_windows(list(range(21)), [], 20, 1).tolist() == [list(range(21))]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": 0}, "windows must be a whole number of at least 1; got 0."),
        ({"scored": True}, "scored must be a whole number of at least 1; got True."),
        ({"texts": -1}, "texts must be a whole number of at least 0; got -1."),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1."),
        ({"forms": ("keys",)}, "form 'keys' is unknown. Known: passkey, several_keys, variable"),
        ({"methods": ()}, "methods must have at least one name, such as yarn."),
        ({"methods": ("yarm",)}, "method 'yarm' is unknown; did you mean 'yarn'? Known: none,"),
        ({"depths": (1.5,)}, "depths must be numbers from 0 to 1; got [1.5]."),
    ],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        ExtensionTest(**options)


def test_budgets() -> None:
    quick, full = ExtensionTest.from_budget(), ExtensionTest.from_budget("full", windows=2)
    assert quick == ExtensionTest()
    assert (full.windows, full.texts, len(full.depths)) == (2, 4, 5)
    with pytest.raises(ValueError, match=r"^budget 'ful' is unknown; did you mean 'full'\?"):
        ExtensionTest.from_budget("ful")


def test_every_method_is_tried(loaded: LoadedModel) -> None:
    test = ExtensionTest(windows=1, scored=8, texts=0)
    labels: list[str] = []
    found = evaluate_methods(
        loaded, TEXT, to="4x", test=test, progress=lambda moment: labels.append(moment.label)
    )
    rows = {row["name"]: row for row in found["rows"]}
    assert set(rows) == {
        *("none", "linear", "ntk", "raised_base", "ntk_by_parts", "yarn", "llama3"),
        *("dynamic_ntk", "dynamic_yarn", "sliding_window"),
    }
    assert all(set(row["by_length"]) == {"32", "64", "128", "256"} for row in rows.values())
    # What follows the length is as published within the trained length, and read once.
    for name in ("dynamic_ntk", "dynamic_yarn"):
        assert rows[name]["by_length"]["64"] == rows["none"]["by_length"]["64"]
        assert f"{name} 64" not in labels
        assert f"{name} 128" in labels
    assert rows["dynamic_yarn"]["by_length"]["256"] == rows["yarn"]["by_length"]["256"]
    assert rows["dynamic_yarn"]["by_position"] == rows["yarn"]["by_position"]
    assert rows["dynamic_yarn"]["by_length"]["128"] != rows["yarn"]["by_length"]["128"]


def test_retrieval_of_a_model_that_cannot(tmp_path: Path) -> None:
    long = load_model(save_llama(tmp_path / "long", max_position_embeddings=256))
    test = ExtensionTest(methods=("yarn",), windows=1, scored=8, texts=1, depths=(0.5,))
    found = evaluate_methods(long, TEXT, to="2x", test=test)["retrieval"]
    assert found["forms"] == found["means"] == found["effective"] == {}
    assert set(found["why"]) == {"passkey", "several_keys", "variable_tracking"}
    assert found["why"]["passkey"] == (
        "the model as published gives 0% right answers at its trained length of 256 tokens; less"
        " than 90% says nothing about longer texts."
    )


def test_texts_that_do_not_fit(loaded: LoadedModel) -> None:
    test = ExtensionTest(methods=("yarn",), windows=1, scored=8, texts=1)
    found = evaluate_methods(loaded, TEXT, to="2x", test=test)["retrieval"]
    assert found["why"]["several_keys"].startswith("a several_keys text must have at least ")


def test_retrieval_of_a_model_that_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are replaced: right where the evidence is in the last 256 tokens, or yarn is used."""
    long = load_model(save_llama(tmp_path / "long", max_position_embeddings=256))
    (module,) = find_rotary_modules(long.model, 4)
    plain = module.inv_freq.clone()

    def score(loaded: LoadedModel, text: Any, window: int | None) -> float:
        near = text.tokens[-257:]
        seen = b"The pass key is" in bytes(near[:200])
        return float(seen or not torch.equal(module.inv_freq, plain))

    monkeypatch.setattr("whorl.extend.evaluation.evaluate.score_text", score)
    test = ExtensionTest(
        methods=("yarn",), windows=1, scored=8, texts=1, depths=(0.1, 0.9), forms=("passkey",)
    )
    found = evaluate_methods(long, TEXT, to="2x", test=test)["retrieval"]
    assert found["forms"]["passkey"] == {
        "yarn": {"256": [1.0, 1.0], "512": [1.0, 1.0]},
        "none": {"256": [1.0, 1.0], "512": [0.0, 1.0]},
        "sliding_window": {"256": [1.0, 1.0], "512": [0.0, 1.0]},
    }
    assert found["means"]["none"] == {"256": 1.0, "512": 0.5}
    assert found["effective"]["yarn"] == {"threshold": 512, "own": 512}
    assert found["effective"]["sliding_window"] == {"threshold": 256, "own": 256}


def test_what_does_not_fit_into_the_time_is_named(loaded: LoadedModel, tmp_path: Path) -> None:
    whole = evaluate_methods(loaded, TEXT, to="4x", test=SMALL)
    part = evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path, minutes=1e-9)
    assert len(part["missing"]) == 12  # of 3 methods at 4 lengths and a window, one was measured
    assert [row["name"] for row in part["rows"] if row["by_length"]] != []
    assert part["recipes"] is None
    rest = evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path)
    assert rest == whole
    assert rest["missing"] == []
    with pytest.raises(ValueError, match=r"^minutes must be above 0; got 0\.$"):
        evaluate_methods(loaded, TEXT, to="4x", test=SMALL, minutes=0)


def test_too_little_memory(
    loaded: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 2 layers, 2 key heads of 8 channels: 256 bytes for the keys and values of a token.
    assert count_cache_bytes(loaded.model, 256) == 256 * 256
    assert count_cache_bytes(torch.nn.Linear(2, 2), 256) is None

    def fail(*given: Any) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried")

    monkeypatch.setattr("whorl.extend.evaluation.evaluate.compute_scores_of_text", fail)
    message = (
        r"^there is too little memory for \w+ in texts of 64 tokens, of which keys and values are 0"
        r" MB\. Free some, or choose a shorter target; what was measured is kept"
    )
    with pytest.raises(ValueError, match=message):
        evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path)
    monkeypatch.setattr("whorl.extend.evaluation.resources.read_available", lambda: 1000)
    message = r"^a text of 256 tokens needs 0 MB for keys and values, and 0 MB of memory are free"
    with pytest.raises(ValueError, match=message):
        evaluate_methods(loaded, TEXT, to="4x", test=SMALL)


def test_a_folder_that_cannot_be_written(loaded: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OSError, match=r"^results cannot be written to .* What was written before is"
    ):
        evaluate_methods(loaded, TEXT, to="4x", test=SMALL, folder=tmp_path / "file" / "results")


def test_a_text_that_is_too_short(loaded: LoadedModel) -> None:
    message = "the text must have at least 257 tokens, one window of the target length; it has 10."
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate_methods(loaded, "ten bytes.", to="4x", test=SMALL)


def test_models_that_cannot_be_evaluated(tmp_path: Path, loaded: LoadedModel) -> None:
    with pytest.raises(ValueError, match=r"must compute its angles from inv_freq, one number for"):
        find_rotary_modules(loaded.model, 5)
    with pytest.raises(ValueError, match=r"has no module with inv_freq\.$"):
        find_rotary_modules(torch.nn.Linear(2, 2), 4)
    with pytest.raises(
        ValueError, match=r"must have rotary positions; bloom .* nothing to|to change"
    ):
        select_group(read_config({"model_type": "bloom", "n_head": 4, "hidden_size": 32}))
    gemma = {"model_type": "gemma3_text", "head_dim": 16, "num_hidden_layers": 12}
    with pytest.raises(ValueError, match="all layers of the model must rotate alike; those of"):
        select_group(read_config(gemma))
    t5 = T5ForConditionalGeneration(T5Config(d_model=16, d_kv=4, num_heads=2, num_layers=1))
    t5.save_pretrained(tmp_path / "t5")
    with pytest.raises(ValueError, match=r"the model in .*t5' cannot be loaded: "):
        load_model(tmp_path / "t5")
