"""Models to export, and transformers as the judge of what was written."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from whorl.lab.config import ModelConfig
from whorl.lab.model import Model

#: Of logits, over angles in float64 here and in float32 there.
TOLERANCE = 1e-5


def built(encoding: Any = "rope", *, vocab: int = 256, **shape: Any) -> Model:
    """A model whose every weight shows in its logits, and so does every position."""
    config = ModelConfig(**{"layers": 2, "width": 64, "heads": 4, "encoding": encoding, **shape})
    model = Model(config, vocab=vocab, longest=256)
    source = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            matrix = weight.dim() == 2
            noise = torch.randn(weight.shape, generator=source)
            weight.copy_(noise / config.width**0.5 if matrix else 1 + 0.3 * noise)
    return model.eval()


def rope(**options: Any) -> dict[str, Any]:
    scaling = options.pop("scaling", None)
    extra = {"scaling": scaling.to_dict()} if scaling else {}
    return {"name": "rope", **options, **extra}


@torch.no_grad()
def difference(model: Model, folder: Path, length: int = 64) -> float:
    """Largest difference of logits on random tokens, in a model loaded afresh."""
    tokens = torch.randint(0, model.vocab, (2, length), generator=torch.Generator().manual_seed(2))
    theirs = loaded(folder)(tokens).logits
    return float((theirs - model(tokens)).abs().max())


def loaded(folder: Path) -> Any:
    with silent():
        found, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder, output_loading_info=True
        )
    kind = {"llama": transformers.LlamaForCausalLM, "qwen3": transformers.Qwen3ForCausalLM}
    assert type(found) is kind[config_in(folder)["model_type"]]
    assert not any(report.values()), report
    return found


@contextmanager
def silent() -> Iterator[None]:
    """Refuse whatever transformers warns of in its log."""
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    level = logger.level
    logger.setLevel(logging.WARNING)  # whatever another test made of it
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert said == [], said


def config_in(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return document


def words(*tokens: str, added: list[str] = []) -> dict[str, Any]:  # noqa: B006  # not changed
    """A tokenizers file that splits at spaces."""
    switches = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": len(tokens) + n, "content": word, **dict.fromkeys(switches, False)}
            for n, word in enumerate(added)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: n for n, token in enumerate(tokens)},
            "unk_token": "?",
        },
    }
