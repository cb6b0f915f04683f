"""A folder of transformers to fine-tune: its model with the extended config, and how it is written.

The model is built anew from the extended config, so that it is trained with the very angles that
transformers computes when it loads the result. The result has the files of the original folder with
another config.json and other weights, in the dtype that the config names.

Without positions, the config asks for linear scaling by a factor so large that no pair rotates
within the rounding of float32, because no model of transformers has a key for that.
"""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from whorl._support.files import write_file_atomically
from whorl._support.words import quote
from whorl.attention import shifted_attention
from whorl.configs.diagnosis.fix import format_config
from whorl.extend.evaluation import LoadedModel, load_model
from whorl.extend.evaluation.loading import disable_messages
from whorl.extend.evaluation.losses import compute_scores_of_text
from whorl.extend.writing import get_extended_config

from .models import TunedModel, WrittenTraining, plan_target
from .settings import FineTuning
from .text import encode_text, read_texts

__all__ = ["NO_ROTATION", "FolderModel", "open_folder"]

#: Factor of linear scaling by which positions up to 100,000 rotate by less than 1e-7.
NO_ROTATION = 1e12

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".index.json")
#: Words in the names of parameters, and the part of the model that they belong to.
_PARTS = (
    ("norm", "norms"),
    ("ln_", "norms"),
    ("lm_head", "head"),
    ("embed_out", "head"),
    ("embed", "embedding"),
    ("wte", "embedding"),
    ("attn", "attention"),
    ("attention", "attention"),
    ("mlp", "mlp"),
    ("feed_forward", "mlp"),
    ("experts", "mlp"),
)


def open_folder(path: Path, texts: Sequence[str | Path], settings: FineTuning) -> "FolderModel":
    """The model in a folder of transformers, with the extension of ``settings``."""
    if path.suffix == ".gguf":
        raise ValueError(
            f"model must be a folder of transformers or a run of whorl train; {str(path)!r} is a"
            " GGUF file, whose weights are for inference. Fine-tune the model that it was made of."
        )
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise ValueError(
            f"model must be a folder of transformers or a run of whorl train; {str(path)!r} {what}."
        )
    files = read_texts(texts)
    loaded = load_model(path)
    plan = plan_target(loaded.config, settings)
    config = get_extended_config(plan)
    if settings.drop_positions:
        config = _remove_rotation(config)
    method = plan.find_method(plan.chosen)
    assert method is not None
    model = FolderModel(path, loaded, config, plan.trained.tokens, plan.target)
    if method.scaling is not None and not settings.drop_positions:
        model.scaling = method.scaling.to_dict()
    published: Any = loaded.model.config
    vocab = int(published.get_text_config(decoder=True).vocab_size)
    model.text = encode_text(files, loaded.encode, loaded.first_tokens, vocab)
    return model


class FolderModel(TunedModel):
    """A causal language model of transformers, built from ``config`` with trained weights."""

    kind, default_learning_rate = "transformers", 2e-5

    def __init__(
        self, path: Path, loaded: LoadedModel, config: dict[str, Any], trained: int, target: int
    ) -> None:
        super().__init__(loaded.name, _rebuild(loaded.model, config), trained, target)
        self.path, self.config, self.digest = path, config, loaded.digest
        self.dtype = _read_dtype(config)
        self._dense = str(self._model.config._attn_implementation)

    @property
    def _model(self) -> Any:
        return self.module

    def compute_logits(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        # With a mask, transformers does not take a gap of positions for the start of a new text.
        out = self._model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            position_ids=positions,
            use_cache=False,
        )
        logits: Tensor = out.logits
        return logits

    def score_end(self, tokens: Tensor, scored: int) -> float:
        # In chunks with a cache: the logits of a long text would take more memory than the model.
        found = compute_scores_of_text(self._model, tokens, len(tokens) - 1 - scored)
        return float(found.losses.mean())

    def name_part(self, name: str) -> str:
        return next((part for word, part in _PARTS if word in name), "others")

    def use_attention(self, group: int | None) -> None:
        name = self._dense if group is None else _register_shifted(group)
        try:
            self._model.set_attn_implementation(name)
        except ValueError:
            used = None
        else:
            used = self._model.config._attn_implementation
        if used != name:
            raise ValueError(
                f"attention 'shifted-sparse' needs a model whose attention can be replaced;"
                f" {type(self.module).__name__} has its own. Train with attention 'dense'."
            )

    def write(self, folder: Path, training: WrittenTraining) -> None:
        import transformers
        from safetensors import SafetensorError

        with disable_messages(transformers):
            try:
                self._model.to(self.dtype).save_pretrained(folder)
            except SafetensorError as error:  # a full disk, which others report as OSError
                raise OSError(str(error)) from None
        for path in folder.iterdir():
            if not path.name.endswith((".safetensors", ".index.json")):
                path.unlink()
        for path in self.path.iterdir():
            if path.is_file() and not path.name.endswith(_WEIGHTS):
                shutil.copyfile(path, folder / path.name)
        write_file_atomically(folder / "config.json", format_config(self.config).encode())


def _rebuild(model: Any, config: Mapping[str, Any]) -> nn.Module:
    """A model of the same class with this config and the weights of ``model``."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        new = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if type(new) is not type(model.config):
        new = new.get_text_config(decoder=True)
    built: nn.Module = type(model)(new)
    built.float()
    built.load_state_dict(model.state_dict(), assign=True)
    built.tie_weights()  # type: ignore[operator]
    for weight in built.parameters():
        weight.requires_grad_(True)
    return built


def _read_dtype(config: Mapping[str, Any]) -> torch.dtype:
    """The dtype of the weights that a config names; float32 if it names none."""
    named = config.get("dtype") or config.get("torch_dtype") or "float32"
    found = getattr(torch, str(named), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ValueError(
            f"dtype in config.json must be a type of floating-point numbers, such as bfloat16; got"
            f" {quote(named)}."
        )
    return found


def _remove_rotation(config: dict[str, Any]) -> dict[str, Any]:
    """A config with linear scaling whose factor leaves no rotation."""

    def replace_factor(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {key: replace_factor(one) for key, one in value.items()}
        if "linear" in (value.get("rope_type"), value.get("type")):
            changed["factor"] = NO_ROTATION
        return changed

    return dict(replace_factor(config))


def _register_shifted(group: int) -> str:
    """Make shifted sparse attention known to transformers; returns its name there."""
    from transformers import AttentionInterface, AttentionMaskInterface

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, None]:
        windowed = sliding_window is not None and sliding_window < query.shape[2]
        if windowed or softcap is not None or s_aux is not None:
            raise ValueError(
                "attention 'shifted-sparse' needs layers without a sliding window, soft caps and"
                f" sinks; {type(module).__name__} has one of them. Train with attention 'dense'."
            )
        q, k = query.to(value.dtype), key.to(value.dtype)  # float32 after rotation in autocast
        out = shifted_attention(q, k, value, group=group, causal=True, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    name = f"whorl_shifted_{group}"
    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, _build_no_mask)
    return name


def _build_no_mask(**options: Any) -> None:
    """No mask: sequences are never padded, and groups are causal by themselves."""
