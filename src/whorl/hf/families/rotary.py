"""Models that rotate queries and keys: Llama and its relatives.

Rotation is about a hundredth of such a model's work on a CPU, so ``install`` does not make them
faster by itself. It computes masks without a T x S matrix, and if asked it replaces the angles by
exact ones, the scaling by another, or the rotation by another encoding.

transformers rotates keys once and caches them rotated, and so it stays. With another encoding, or
with keys="unrotated", cos is 1 and sin is 0, and attention rotates the tokens in the cache.
"""

import inspect
from collections.abc import Iterator
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from whorl._support.tensors import has_values
from whorl._support.words import quote
from whorl.configs import Rotation, read_config
from whorl.encodings import Encoding, NoPE, RoPE
from whorl.encodings.rotary.rotary import Rotary
from whorl.hf.changes import Change, ClassChange, ModuleChange
from whorl.hf.interface import NAME
from whorl.hf.options import InstallOptions
from whorl.hf.positions import remember_positions

from .base import ModelFamily

__all__ = [
    "FAMILY",
    "build_cached",
    "change_rotation",
    "check_consecutive",
    "list_changes",
    "refuse_several_axes",
]

#: How cos of P pairs is arranged for the product: c0 c1 c0 c1, c0 c0 c1 c1, or c0 c1.
Arrangement = Literal["halves", "doubled", "pairs"]


class WhorlRotaryEmbedding(nn.Module):
    """Gives cos and sin as the module that it replaces, from whorl's angles.

    rotations: by layer type, or under None if all layers rotate alike; empty for no rotation.
    """

    def __init__(
        self,
        original: nn.Module,
        rotations: dict[str | None, Rotary],
        arrangement: Arrangement = "halves",
    ) -> None:
        super().__init__()
        self.original, self.arrangement = original, arrangement
        self.rotations = rotations

    def forward(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.rotations:
            check_consecutive(position_ids)
            remember_positions(position_ids)
            _check_implementation(self.original)
            # Position 0, because modules of transformers remember the longest text.
            cos, _ = self.original(x, torch.zeros_like(position_ids[..., :1]), *args, **kwargs)
            ones = cos.new_ones(*cos.shape[:-2], position_ids.shape[-1], cos.shape[-1])
            return ones, torch.zeros_like(ones)
        kind = args[0] if args else kwargs.get("layer_type")
        rotation = self.rotations[kind if kind in self.rotations else None]
        scaling, length = rotation.config.scaling, None
        if scaling is not None and scaling.follows_length:
            length = int(position_ids.max()) + 1
        cos, sin = rotation.tables(position_ids, context_length=length)
        cos, sin = (_expand_pairs(part, self.arrangement) for part in (cos, sin))
        return cos.to(x.dtype), sin.to(x.dtype)


def _check_implementation(original: nn.Module) -> None:
    """Refuse to leave tokens unrotated for an attention that will not rotate them."""
    name = getattr(getattr(original, "config", None), "_attn_implementation", NAME)
    if name != NAME:
        raise ValueError(
            f"the attention implementation must stay {NAME!r} with encoding= or keys='unrotated',"
            f" because it rotates the keys; got {quote(name)}. Call whorl.hf.uninstall(model)"
            " before model.set_attn_implementation."
        )


def check_consecutive(position_ids: Tensor) -> None:
    """Refuse positions that skip some, because attention counts the tokens in the cache instead.

    They may start again at padding, and in packed rows where attention knows that it may; on
    several axes they must be equal, and attention does not know.
    """
    if torch.compiler.is_compiling() or not has_values(position_ids):
        return
    axes = position_ids if position_ids.dim() == 3 else position_ids[None]
    starts_again = axes[..., 1:] <= 1
    again = (starts_again & (axes[..., :-1] > 1)).cumsum(-1) > 0
    packed = position_ids.dim() == 3 and bool((again & (axes[..., 1:] > 1)).any())
    skips = bool(((axes.diff(dim=-1) != 1) & ~starts_again).any())
    if skips or packed or bool((axes != axes[:1]).any()):
        raise ValueError(
            "position_ids must count tokens one by one with encoding= or keys='unrotated', where"
            " attention goes by the order of tokens in the cache; got some that skip or repeat"
            " positions, as those of images do."
            " Call whorl.hf.uninstall(model), or leave out encoding and keys, to use them."
        )


def _plan(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    changes = change_rotation(model, options)
    refuse_several_axes(options.encoding)
    if options.encoding is not None:
        changes += _set_encoding(model, options.encoding)
    elif options.keys == "unrotated":
        changes += _move_rotation(model, options)
    return changes


def refuse_several_axes(encoding: Encoding | None) -> None:
    """Refuse an encoding that needs more than one number for a position."""
    if encoding is not None and encoding.position_axes > 1:
        raise ValueError(
            "whorl.hf.install: encoding must have positions on one axis, because attention gets no"
            f" others from transformers; got {quote(encoding)}."
        )


def change_rotation(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    """Changes of the modules that compute cos and sin: others if asked for, 1 and 0 for none."""
    if options.encoding is not None or options.keys == "unrotated":
        return _remove_rotation(model)
    if options.scaling is None and options.precision == "float32" and options.impl == "auto":
        return []
    config = model.config.get_text_config()
    changes: list[Change] = []
    for parent, name, module in _find_rotary_modules(model):
        _refuse_meta(module)
        rotations = _build_rotations(config, options)
        arrangement = _find_arrangement(module, rotations)
        new = WhorlRotaryEmbedding(module, rotations, arrangement)
        changes.append(ModuleChange(parent, name, new))
    if not changes:
        raise ValueError(
            f"whorl.hf.install: {type(model).__name__} has no module that computes cos and sin, so"
            " that precision, scaling and impl have nothing to act on. Leave them out."
        )
    return changes


def _refuse_meta(module: nn.Module) -> None:
    """Refuse a rotary module without numbers, which cannot be asked how it arranges them."""
    if any(buffer.is_meta for buffer in module.buffers()):
        raise ValueError(
            f"whorl.hf.install: {type(module).__name__} must be loaded for precision, scaling and"
            " impl; it is on the meta device. Load the weights before."
        )


def _find_rotary_modules(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Parent, name and module of all that compute cos and sin for text."""
    for parent in list(model.modules()):
        for name, module in parent.named_children():
            kind = type(module).__name__
            if kind.endswith("RotaryEmbedding") and not kind.endswith("VisionRotaryEmbedding"):
                yield parent, name, module


def _find_attention_modules(model: PreTrainedModel) -> Iterator[nn.Module]:
    for module in model.modules():
        if type(module).__name__.endswith("Attention") and hasattr(module, "layer_idx"):
            yield module


def _remove_rotation(model: PreTrainedModel) -> list[Change]:
    return [
        ModuleChange(parent, name, WhorlRotaryEmbedding(module, {}))
        for parent, name, module in _find_rotary_modules(model)
    ]


def _set_encoding(model: PreTrainedModel, encoding: Encoding) -> list[Change]:
    return [
        ClassChange(module, type(module), {"whorl_encoding": encoding})
        for module in _find_attention_modules(model)
    ]


def _move_rotation(model: PreTrainedModel, options: InstallOptions) -> list[Change]:
    """Give each attention module the rotation that the model had, to apply to its cache."""
    rotations = {
        layer: NoPE() if group.rotation is None else build_cached(group.rotation, options)
        for group in read_config(model.config.get_text_config()).groups
        for layer in group.layers
    }
    return [
        ClassChange(
            module, type(module), {"whorl_encoding": rotations[cast(int, module.layer_idx)]}
        )
        for module in _find_attention_modules(model)
    ]


def build_cached(rotation: Rotation, options: InstallOptions) -> Encoding:
    """The rotation of keys as a model caches them."""
    how: dict[str, Any] = {**rotation.options, **list_changes(options)}
    if rotation.encoding == "mrope":  # the axes of text are equal, and images are refused
        how = {name: value for name, value in how.items() if name not in ("order", "sections")}
    return RoPE(**how)


def _build_rotations(config: Any, options: InstallOptions) -> dict[str | None, Rotary]:
    """The rotation of each layer type, as the config says and the options change it."""
    found = read_config(config)
    rotations: dict[str | None, Rotary] = {}
    for group in found.groups:
        if group.rotation is None:
            continue
        rotation = cast("Rotary", group.rotation.build(**list_changes(options)))
        rotations[group.name] = rotation
        rotations.setdefault(None, rotation)
    return rotations


def list_changes(options: InstallOptions) -> dict[str, Any]:
    """What ``install`` changes in a rotation of the config."""
    how: dict[str, Any] = {"precision": options.precision, "impl": options.impl}
    return how if options.scaling is None else {**how, "scaling": options.scaling}


def _expand_pairs(x: Tensor, arrangement: Arrangement) -> Tensor:
    """Numbers of the pairs, [..., P], as a model multiplies them."""
    if arrangement == "halves":
        return torch.cat((x, x), -1)
    return x.repeat_interleave(2, -1) if arrangement == "doubled" else x


def _find_arrangement(module: nn.Module, rotations: dict[str | None, Rotary]) -> Arrangement:
    """How a module arranges the numbers of its pairs, found by calling it."""
    positions, kinds = torch.arange(1, 8)[None], [kind for kind in rotations if kind is not None]
    has_types = "layer_type" in inspect.signature(module.forward).parameters
    cos, _ = module(torch.zeros(1), positions, *(kinds[:1] if has_types else ()))
    half = cos.shape[-1] // 2
    if torch.equal(cos[..., :half], cos[..., half:]):
        return "halves"
    return "doubled" if torch.equal(cos[..., ::2], cos[..., 1::2]) else "pairs"


FAMILY = ModelFamily("rotary", _plan, changes_modules=False)
