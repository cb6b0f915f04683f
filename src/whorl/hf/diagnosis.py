"""Whether a loaded model rotates as its config says: its frequencies against those of the config.

A config may be right and the model in memory wrong: a loader that fills buffers on the meta device
with anything, one that ignores the scaling or applies another, weights cast together with the
frequencies, a config that was changed after loading.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whorl._support.words import quote
from whorl.configs import ConfigError, LayerGroup, ModelPositions, read_config

__all__ = ["LiveDiagnosis", "LiveFinding", "diagnose"]

# Frequencies in float32 are within 1e-6 of float64; a wrong scaling moves some by a tenth or more.
_NEAR = 1e-4
_PRECISE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class LiveFinding:
    """One difference between a loaded model and its config.

    where: the buffer or attribute, as a path in the model.
    """

    severity: Literal["error", "warning"]
    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.message} {self.remedy}"


@dataclass(frozen=True)
class LiveDiagnosis:
    """What is wrong with the rotations of a loaded model.

    checked: paths of the frequencies that were compared. skipped: rotary modules that were not, by
    path, each with the reason.
    """

    model: str
    findings: tuple[LiveFinding, ...]
    checked: tuple[str, ...]
    skipped: dict[str, str]

    @property
    def errors(self) -> tuple[LiveFinding, ...]:
        """The findings that change what the model computes."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "model": self.model,
            "findings": [asdict(finding) for finding in self.findings],
            "checked": list(self.checked),
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        if not self.checked and not self.findings:
            head = f"{self.model}: no frequencies to compare."
        else:
            count = "1 problem" if len(self.findings) == 1 else f"{len(self.findings)} problems"
            head = f"{self.model}: {count} in {len(self.checked)} tables of frequencies."
        notes = [f"not compared: {where}: {why}" for where, why in self.skipped.items()]
        return "\n".join([head, *map(str, self.findings), *notes])


def diagnose(model: PreTrainedModel) -> LiveDiagnosis:
    """Compare the frequencies that a loaded model rotates by with those of its config.

    Nothing is changed, and the model is not run.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> import whorl
    >>> sizes = dict(hidden_size=64, num_attention_heads=4, intermediate_size=64, vocab_size=10)
    >>> model = LlamaModel(LlamaConfig(num_hidden_layers=1, **sizes))
    >>> print(whorl.hf.diagnose(model))
    LlamaModel: 0 problems in 1 tables of frequencies.
    >>> model.rotary_emb.inv_freq /= 4
    >>> whorl.hf.diagnose(model).errors[0].message
    'the frequencies are 1/4 of those that the config gives, as after linear scaling by 4.'
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            "whorl.hf.diagnose: model must be a model of transformers, such as"
            f" AutoModel.from_pretrained(...) gives; got {quote(model)}."
        )
    findings: list[LiveFinding] = []
    checked, skipped = [], {}
    for path, module in model.named_modules():
        if not type(module).__name__.endswith("RotaryEmbedding"):
            continue
        config = getattr(module, "config", None)
        try:
            if config is None:
                raise ConfigError("it has no config of its own")
            positions = read_config(config, parity="transformers")
            if any(g.rotation and g.rotation.encoding == "axial_rope" for g in positions.groups):
                raise ConfigError("it rotates by rows and columns, with one table for both")
            for name, group in _find_buffers(module, positions):
                checked.append(f"{path}.{name}")
                findings += _compare(module, name, group, f"{path}.{name}")
        except ConfigError as error:
            skipped[path] = str(error)
    return LiveDiagnosis(type(model).__name__, tuple(findings), tuple(checked), skipped)


def _find_buffers(module: nn.Module, found: ModelPositions) -> Iterator[tuple[str, LayerGroup]]:
    """Names of the frequencies of a rotary module, and the layers that use them.

    Scalings that follow the length replace ``inv_freq`` in a call and keep the first ones apart.
    """
    for group in found.groups:
        if group.rotation is None:
            continue
        for prefix in (f"{group.name}_", ""):
            name = f"{prefix}inv_freq"
            if isinstance(getattr(module, name, None), Tensor):
                scaling = group.rotation.options.get("scaling")
                first = f"{prefix}original_inv_freq"
                follows = scaling is not None and scaling.follows_length
                is_there = isinstance(getattr(module, first, None), Tensor)
                yield (first if follows and is_there else name), group
                break


def _compare(module: nn.Module, name: str, group: LayerGroup, where: str) -> Iterator[LiveFinding]:
    """Differences of the frequencies and of the attention scale from those of the config."""
    assert group.rotation is not None
    right = group.rotation.frequencies()
    expected, scale = right.inv_freq, float(right.attention_scale)
    found = getattr(module, name).detach().double().cpu()
    again = "Load the model again with another version or without a patched loader."
    if found.shape != expected.shape:
        yield LiveFinding(
            "error",
            where,
            f"there are {found.numel()} frequencies, and the config gives {expected.numel()}.",
            again,
        )
    elif not bool(found.isfinite().all()) or not bool((found > 0).all()):
        yield LiveFinding(
            "error",
            where,
            "some frequencies are zero, negative or not finite, as in a buffer that was allocated"
            " on the meta device and never filled.",
            "Load the model without device_map and low_cpu_mem_usage, or fill the buffer from the"
            " config.",
        )
    elif float((found / expected - 1).abs().max()) > _NEAR:
        yield _explain_frequencies(found, group, where, getattr(module, name).dtype)
    factor = name.replace("original_", "").replace("inv_freq", "attention_scaling")
    actual = getattr(module, factor, None)
    if isinstance(actual, float | int) and abs(actual / scale - 1) > _NEAR:
        yield LiveFinding(
            "error",
            where.removesuffix(name) + factor,
            f"cos and sin are multiplied by {actual:.6g}, and the config gives {scale:.6g}.",
            again,
        )


def _explain_frequencies(
    found: Tensor, group: LayerGroup, where: str, dtype: torch.dtype
) -> LiveFinding:
    """A finding about frequencies that differ, with the cause if it can be told."""
    assert group.rotation is not None
    expected = group.rotation.frequencies().inv_freq
    if dtype not in _PRECISE and torch.equal(found, expected.to(dtype).double()):
        worst = float((found - expected).abs().max())
        return LiveFinding(
            "warning",
            where,
            f"the frequencies are rounded to {str(dtype).removeprefix('torch.')}, so that angles"
            f" are off by one radian at position {1 / worst:,.0f}.",
            "Convert the model with from_pretrained(dtype=...), which leaves them in float32, not"
            " with .half() or .to().",
        )
    plain = group.rotation.build_without_tables(scaling=None).frequencies().inv_freq
    ratio = expected / found
    remedy = "Load the model again, with the config as it is to be used."
    if group.rotation.options.get("scaling") is not None and _is_near(found, plain):
        message = "the frequencies are those without the scaling of the config."
    elif _is_near(ratio, ratio[:1].expand_as(ratio)):
        factor = f"{float(ratio[0]):.6g}"
        message = (
            f"the frequencies are 1/{factor} of those that the config gives, as after linear"
            f" scaling by {factor}."
        )
    elif _is_near(plain / found, (plain / found)[:1].expand_as(plain)):
        factor = f"{float((plain / found)[0]):.6g}"
        message = (
            f"the frequencies are those of linear scaling by {factor}, and the config has"
            f" {group.rotation.options.get('scaling')!r}."
        )
    else:
        pair = int((found / expected).log().abs().argmax())
        message = (
            f"the frequencies differ from the config: that of pair {pair} is"
            f" {float(found[pair]):.6g} instead of {float(expected[pair]):.6g}."
        )
    return LiveFinding("error", where, message, remedy)


def _is_near(one: Tensor, other: Tensor) -> bool:
    return bool(((one / other - 1).abs() <= _NEAR).all())
