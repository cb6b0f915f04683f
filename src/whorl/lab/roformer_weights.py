"""Checkpoints of RoFormer: those of transformers, read and written, and those of the first release.

    folder/config.json          sizes; bert_config.json in the first release
    folder/model.safetensors    weights, by the names of transformers or the original ones

Both namings are in ``roformer_names``. A checkpoint of the first release (Su et al. 2021,
https://arxiv.org/abs/2104.09864) is read from a safetensors file that has the TensorFlow variables
under their names. Pickled files are not read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from whorl._support.extras import import_extra
from whorl._support.words import list_quoted, quote
from whorl.encodings import Encoding, RoPE

from ._checks import check_choice
from .config import EncodingSpec
from .files import format_json, read_json, resolve_free_folder, write_folder
from .roformer import RoFormer, RoFormerClassifier, RoFormerConfig, RoFormerMaskedLM
from .roformer_names import (
    BIAS,
    DECODER,
    DECODER_BIAS,
    POSITIONS,
    AnyRoFormer,
    FoundTensor,
    convert_to_original,
    get_encoder,
    name_in_transformers,
    rename_tensors,
)

__all__ = ["LoadedRoFormer", "check_saving", "load_roformer", "save_roformer"]

HeadKind = Literal["none", "mlm", "classification"]
Naming = Literal["transformers", "original"]

#: Options of RoFormerConfig, by their keys in config.json.
_CONFIG_KEYS = {
    "vocab": "vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "embedding_width": "embedding_size",
    "token_types": "type_vocab_size",
    "padding_token": "pad_token_id",
    "max_length": "max_position_embeddings",
    "activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "rotary_value": "rotary_value",
    "tied": "tie_word_embeddings",
}
#: What transformers takes where config.json says nothing, and RoFormerConfig takes something else.
_CONFIG_DEFAULTS = {"vocab": 50_000, "padding_token": 0}
#: Sines and cosines in bfloat16 are off by up to 0.002.
_TABLE_ROUNDING = 0.004


@dataclass(frozen=True, eq=False)
class LoadedRoFormer:
    """A model from a checkpoint, in evaluation mode, and what became of each weight.

    loaded, left_over: names in the file, of weights that the model has or has no place for.
    missing: parameters of the model that the file does not have; they are random.
    """

    model: AnyRoFormer
    naming: Naming
    loaded: tuple[str, ...]
    left_over: tuple[str, ...]
    missing: tuple[str, ...]

    def describe(self) -> str:
        """What was loaded, in one sentence.

        >>> LoadedRoFormer(nn.Module(), "original", ("a", "b"), ("c",), ()).describe()
        "2 tensors loaded (original names); 1 left over: 'c'; none missing."
        """
        words = [f"{len(self.loaded)} tensors loaded ({self.naming} names)"]
        for what, names in (("left over", self.left_over), ("missing", self.missing)):
            words.append(f"{len(names)} {what}: {list_quoted(names)}" if names else f"none {what}")
        return "; ".join(words) + "."


def load_roformer(
    source: str | Path,
    *,
    head: HeadKind | None = None,
    classes: int | None = None,
    encoding: EncodingSpec = "rope",
    seed: int = 0,
) -> LoadedRoFormer:
    """A RoFormer with the weights of a checkpoint, and a report of what was loaded.

    Args:
        source: a folder with config.json and one safetensors file, or that file.
        head: "mlm" (``RoFormerMaskedLM``), "classification" (``RoFormerClassifier``) or "none"
            (``RoFormer``); by default the one that the file has weights for.
        classes: of a new head for classification; by default those of the file, else 2.
        encoding: another one than the checkpoint's RoPE, whose parameters are then new.
        seed: of weights that the file does not have.

    Raises:
        ValueError: the files cannot be read, or config and weights disagree.
    """
    if head is not None:
        check_choice("head", head, get_args(HeadKind))
    weights_path, config_path = _find_files(Path(source))
    tensors = _read_tensors(weights_path)
    config = _read_config(config_path, encoding)
    naming: Naming = "transformers"
    if any("/" in name for name in tensors):
        naming = "original"
    found = rename_tensors(tensors, naming)
    model = _build_model(config, head or _detect_head(found), classes, found)
    model.reset_parameters(seed)
    loaded, missing = _copy_weights(model, found, config_path.name)
    if not loaded:
        raise ValueError(
            f"{str(weights_path)!r} has no weights of a RoFormer; it has"
            f" {list_quoted(tensors)}. Names must be those of transformers, or the original ones."
        )
    left_over = tuple(name for name in tensors if name not in loaded)
    return LoadedRoFormer(model.eval(), naming, tuple(sorted(loaded)), left_over, missing)


def save_roformer(
    model: AnyRoFormer, folder: str | Path, *, naming: Naming = "transformers"
) -> Path:
    """Write config and weights into a folder, atomically; returns the folder.

    Args:
        folder: must not exist or be empty.
        naming: "transformers" for config.json and weights that ``transformers.AutoModel`` and its
            relatives load; "original" for bert_config.json and the names of the first release.

    Raises:
        ValueError: the encoding is another one than RoFormer's, or the folder is not empty.
    """
    check_choice("naming", naming, get_args(Naming))
    check_saving(model)
    target = resolve_free_folder(Path(folder))
    safetensors = import_extra("safetensors.torch", by="whorl.lab", extra="lab")
    weights = _collect_weights(model)
    if naming == "original":
        weights = _rename_to_original(weights)
    contents = {
        "config.json" if naming == "transformers" else "bert_config.json": format_json(
            _build_config(model)
        ),
        "model.safetensors": safetensors.save(weights, metadata={"format": "pt"}),
    }
    write_folder(target, contents)
    return Path(folder)


def check_saving(model: AnyRoFormer) -> None:
    """Raise ValueError if transformers has no RoFormer with the encoding of ``model``."""
    if not isinstance(model, AnyRoFormer):
        raise TypeError(f"model must be a RoFormer of whorl.lab; got {type(model).__name__}.")
    encoder = get_encoder(model)
    if not _is_original_rotation(encoder.encoding, encoder.config):
        raise ValueError(
            f"the encoding {quote(encoder.encoding)} cannot be written as a RoFormer, which"
            " rotates whole heads in the layout 'interleaved' with base 10000 and no scaling;"
            " choose encoding='rope'."
        )


def _find_files(source: Path) -> tuple[Path, Path]:
    """The safetensors file of ``source`` and its config."""
    weights = source
    if source.is_dir():
        files = sorted(source.glob("*.safetensors"))
        if len(files) != 1:
            raise ValueError(
                f"{str(source)!r} must have one safetensors file; it has {len(files)}. Pass the"
                " file itself, and convert pickled weights to safetensors first."
            )
        weights = files[0]
    if weights.suffix != ".safetensors":
        raise ValueError(f"source must be a folder or a safetensors file; got {str(source)!r}.")
    configs = [weights.with_name(name) for name in ("config.json", "bert_config.json")]
    config = next((path for path in configs if path.exists()), None)
    if config is None:
        raise ValueError(
            f"{str(weights.parent)!r} must have config.json or bert_config.json beside the weights."
        )
    return weights, config


def _read_tensors(path: Path) -> dict[str, Tensor]:
    safe = import_extra("safetensors", by="whorl.lab", extra="lab")
    try:
        with safe.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, safe.SafetensorError) as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}.") from None


def _read_config(path: Path, encoding: EncodingSpec) -> RoFormerConfig:
    document = read_json(path)
    if not isinstance(document, dict):
        raise ValueError(f"{str(path)!r} must be a JSON object; got {quote(document)}.")
    if (kind := document.get("model_type", "roformer")) != "roformer":
        raise ValueError(f"{str(path)!r}: model_type must be 'roformer'; got {quote(kind)}.")
    for key in ("is_decoder", "add_cross_attention"):
        if document.get(key):
            raise ValueError(f"{str(path)!r}: {key} must be false: this model is an encoder.")
    options: dict[str, Any] = dict(_CONFIG_DEFAULTS)
    options |= {option: document[key] for option, key in _CONFIG_KEYS.items() if key in document}
    try:
        return RoFormerConfig(**options, encoding=encoding)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r}: {error}") from None


def _detect_head(found: Mapping[str, FoundTensor]) -> HeadKind:
    if any(name.startswith("cls.predictions.") for name in found):
        return "mlm"
    return "classification" if any(name.startswith("classifier.") for name in found) else "none"


def _build_model(
    config: RoFormerConfig,
    head: HeadKind,
    classes: int | None,
    found: Mapping[str, FoundTensor],
) -> AnyRoFormer:
    if head != "classification" and classes is not None:
        raise ValueError(f"classes goes with head='classification'; the head is {quote(head)}.")
    if head == "none":
        return RoFormer(config)
    if head == "mlm":
        return RoFormerMaskedLM(config)
    if classes is None:
        last = found.get("classifier.out_proj.weight")
        classes = 2 if last is None else len(last.tensor)
    return RoFormerClassifier(config, classes=classes)


@torch.no_grad()
def _copy_weights(
    model: AnyRoFormer, found: Mapping[str, FoundTensor], config_name: str
) -> tuple[set[str], tuple[str, ...]]:
    """Copy weights into ``model``; returns names in the file, and parameters it does not have."""
    loaded, missing = set(), []
    for name, weight in model.named_parameters():
        other = name_in_transformers(model, name)
        came = None if other is None else found.get(other)
        if came is None and other == BIAS:
            came = found.get(DECODER_BIAS)  # the same vector, in some files the only one
        if came is None:
            missing.append(name)
            continue
        if came.tensor.shape != weight.shape:
            raise ValueError(
                f"{quote(came.name)} must have shape {list(weight.shape)} by {config_name},"
                f" as a weight [out, in]; got {list(came.tensor.shape)}."
            )
        weight.copy_(came.tensor)
        loaded.add(came.name)
    return loaded | _check_copies(model, found), tuple(missing)


def _check_copies(model: AnyRoFormer, found: Mapping[str, FoundTensor]) -> set[str]:
    """Names in the file of tensors that repeat others; ValueError if they differ from those."""
    encoder, checked = get_encoder(model), set()
    wanted: dict[str, Tensor] = {}
    if isinstance(model, RoFormerMaskedLM) and model.config.tied:
        wanted = {DECODER: encoder.embedding.weight, DECODER_BIAS: model.head.bias}
    if _is_original_rotation(encoder.encoding, encoder.config) and POSITIONS in found:
        wanted[POSITIONS] = _build_position_table(encoder, len(found[POSITIONS].tensor))
    for other, expected in wanted.items():
        if (came := found.get(other)) is None:
            continue
        rounding = _TABLE_ROUNDING if other == POSITIONS else 0.0
        same = came.tensor.shape == expected.shape
        if not same or (came.tensor.to(expected.dtype) - expected).abs().max() > rounding:
            what = "the sines and cosines of RoPE" if other == POSITIONS else "the tied weight"
            raise ValueError(
                f"{quote(came.name)} must be {what}, because the model computes it from that; got"
                " other numbers."
            )
        checked.add(came.name)
    return checked


def _is_original_rotation(encoding: Encoding, config: RoFormerConfig) -> bool:
    """Whether an encoding rotates as RoFormer does: whole heads, neighbours, base 10000."""
    if type(encoding) is not RoPE:
        return False
    names = "base layout out_layout width rotary_start scaling inv_freq direction frequencies"
    original = RoPE(config.head_dim, layout="interleaved").config
    return all(getattr(encoding.config, name) == getattr(original, name) for name in names.split())


def _build_position_table(encoder: RoFormer, length: int) -> Tensor:
    """Sines, then cosines, of every position, [length, head_dim]: a constant of transformers."""
    rope = RoPE(encoder.config.head_dim, layout="interleaved")
    cos, sin = rope.tables(torch.arange(length))
    return torch.cat((sin, cos), dim=-1)


def _collect_weights(model: AnyRoFormer) -> dict[str, Tensor]:
    """All weights by their names in transformers."""
    encoder = get_encoder(model)
    table = _build_position_table(encoder, encoder.config.max_length)
    weights: dict[str, Tensor] = {POSITIONS: table}
    for name, weight in model.named_parameters():
        other = name_in_transformers(model, name)
        assert other is not None, name
        weights[other] = weight
    if DECODER_BIAS in weights:
        weights[BIAS] = weights[DECODER_BIAS]
    dtype = encoder.embedding.weight.dtype
    return {
        _add_prefix(model, name): weight.detach().to("cpu", dtype).clone().contiguous()
        for name, weight in weights.items()
    }


def _add_prefix(model: nn.Module, name: str) -> str:
    outside = isinstance(model, RoFormer) or name.startswith(("cls.", "classifier."))
    return name if outside else f"roformer.{name}"


def _rename_to_original(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by their original names, without copies and the table of positions."""
    found = {}
    for name, weight in weights.items():
        short = name.removeprefix("roformer.")
        if short == POSITIONS or (short == BIAS and DECODER_BIAS in weights):
            continue
        other, tensor = convert_to_original(short, weight)
        found[other] = tensor.contiguous()
    return found


def _build_config(model: AnyRoFormer) -> dict[str, Any]:
    config = model.config
    document: dict[str, Any] = {key: getattr(config, name) for name, key in _CONFIG_KEYS.items()}
    document["embedding_size"] = config.input_width
    architecture = "RoFormerModel"
    if isinstance(model, RoFormerMaskedLM):
        architecture = "RoFormerForMaskedLM"
    elif isinstance(model, RoFormerClassifier):
        architecture = "RoFormerForSequenceClassification"
        labels = {str(n): f"LABEL_{n}" for n in range(model.classes)}
        document["id2label"] = labels
        document["label2id"] = {label: int(n) for n, label in labels.items()}
    dtype = get_encoder(model).embedding.weight.dtype
    return {
        "architectures": [architecture],
        "model_type": "roformer",
        **document,
        "dtype": str(dtype).removeprefix("torch."),
    }
