"""Names of RoFormer's weights: those of transformers, and the original ones.

    whorl          encoder.layers.0.query.weight
    transformers   roformer.encoder.layer.0.attention.self.query.weight        [out, in]
    original       bert/encoder/layer_0/attention/self/query/kernel            [in, out]

The original naming is that of BERT's TensorFlow variables, which bert4keras and so the authors of
RoFormer kept (Su et al. 2021, https://arxiv.org/abs/2104.09864); an embedding width of its own is
``bert/encoder/embedding_hidden_mapping_in``, as in ALBERT.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from whorl._support.words import quote

from .roformer import RoFormer, RoFormerClassifier, RoFormerMaskedLM

__all__ = [
    "AnyRoFormer",
    "FoundTensor",
    "convert_to_original",
    "get_encoder",
    "name_in_transformers",
    "rename_tensors",
]

AnyRoFormer = RoFormer | RoFormerMaskedLM | RoFormerClassifier

#: Modules by their names in transformers; those of a layer follow "encoder.layer.N.".
_ENCODER_NAMES = {
    "embedding": "embeddings.word_embeddings",
    "token_type_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "projection": "embeddings_project",
}
_LAYER_NAMES = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_MASKED_NAMES = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
}
_CLASSIFIER_NAMES = {"head.dense": "classifier.dense", "head.out": "classifier.out_proj"}
POSITIONS = "encoder.embed_positions.weight"
BIAS, DECODER = "cls.predictions.bias", "cls.predictions.decoder.weight"
DECODER_BIAS = "cls.predictions.decoder.bias"


class FoundTensor(NamedTuple):
    """A tensor in the shape of transformers, and its name in the file."""

    name: str
    tensor: Tensor


def rename_tensors(tensors: Mapping[str, Tensor], naming: str) -> dict[str, FoundTensor]:
    """Tensors by their names in transformers, without the prefix of the encoder."""
    found: dict[str, FoundTensor] = {}
    for name, tensor in tensors.items():
        other = name
        if naming == "original":
            other = _convert_original_name(name)
            tensor = tensor.mT if name.endswith("/kernel") and tensor.dim() == 2 else tensor
        other = other.removeprefix("roformer.")
        other = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", other)
        other = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", other)
        if other in found:
            raise ValueError(f"{quote(name)} and {quote(found[other].name)} are the same weight.")
        found[other] = FoundTensor(name, tensor)
    return found


def _convert_original_name(name: str) -> str:
    """bert/encoder/layer_0/output/dense/kernel -> encoder.layer.0.output.dense.weight."""
    name = re.sub(r"^(bert|roformer)/", "", name)
    name = name.replace("encoder/embedding_hidden_mapping_in/", "embeddings_project/")
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    name = re.sub(r"/kernel$", "/weight", name)
    name = re.sub(r"_embeddings$", "_embeddings/weight", name)
    return name.replace("cls/predictions/output_bias", BIAS).replace("/", ".")


def convert_to_original(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """A name of transformers without the prefix of the encoder, and its tensor, as originally.

    >>> import torch
    >>> name, tensor = convert_to_original("encoder.layer.0.output.dense.weight", torch.ones(2, 3))
    >>> name, tensor.shape
    ('bert/encoder/layer_0/output/dense/kernel', torch.Size([3, 2]))
    """
    inside = "" if name.startswith(("cls.", "classifier.")) else "bert."
    other = name.replace("embeddings_project.", "encoder.embedding_hidden_mapping_in.")
    other = re.sub(r"\blayer\.(\d+)\.", r"layer_\1.", other)
    other = re.sub(r"LayerNorm\.weight$", "LayerNorm.gamma", other)
    other = re.sub(r"LayerNorm\.bias$", "LayerNorm.beta", other)
    other = re.sub(r"_embeddings\.weight$", "_embeddings", other)
    other = other.replace(BIAS, "cls.predictions.output_bias")
    if other.endswith(".weight"):
        other, tensor = other.removesuffix("weight") + "kernel", tensor.mT
    return f"{inside}{other}".replace(".", "/"), tensor


def name_in_transformers(model: AnyRoFormer, name: str) -> str | None:
    """The name of a parameter in transformers, without the prefix of the encoder; or None."""
    module, _, kind = name.rpartition(".")
    if not isinstance(model, RoFormer):
        if name == "head.decoder":
            return DECODER
        if name == "head.bias":
            return BIAS if model.config.tied else DECODER_BIAS
        heads = _MASKED_NAMES if isinstance(model, RoFormerMaskedLM) else _CLASSIFIER_NAMES
        if module in heads:
            return f"{heads[module]}.{kind}"
        module = module.removeprefix("encoder.")
    if module in _ENCODER_NAMES:
        return f"{_ENCODER_NAMES[module]}.{kind}"
    if layer := re.fullmatch(r"layers\.(\d+)\.(\w+)", module):
        return f"encoder.layer.{layer[1]}.{_LAYER_NAMES[layer[2]]}.{kind}"
    return None  # a parameter of the encoding


def get_encoder(model: AnyRoFormer) -> RoFormer:
    return model if isinstance(model, RoFormer) else model.encoder
