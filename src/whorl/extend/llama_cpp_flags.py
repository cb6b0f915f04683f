"""Flags of llama.cpp that extend a GGUF file as it is.

    linear       --rope-scaling linear --rope-scale s
    NTK          --rope-freq-base b
    YaRN         --rope-scaling yarn --rope-scale s --yarn-orig-ctx L

--yarn-attn-factor stays unset: current builds overwrite it under YaRN with 0.1 ln s + 1, older ones
multiply it on top of that. llama-server limits a context to the length in the file; since pull
request 28030 (August 2026) YaRN flags raise that length, other methods need --override-kv.

Divisors of a published Llama 3 scaling or LongRoPE are tensors in the file, which no flag removes:
then the written config must be converted again. docs/extend.md has the sources.
"""

from collections.abc import Iterable

from whorl.configs import LayerGroup, ModelPositions
from whorl.scaling import NTK, Linear, Llama3, LongRoPE, Scaling, YaRN

__all__ = ["build_flags"]

#: Names of architectures in GGUF files, by model type.
_ARCHITECTURES = {
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "gemma3_text": "gemma3",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "mistral": "llama",
    "mixtral": "llama",
    "phi": "phi2",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
}
_NO_FLAG = "no flag asks for it"


def build_flags(
    model: ModelPositions, extended: Iterable[LayerGroup], scaling: Scaling | None, target: int
) -> tuple[list[str] | None, str | None]:
    """The flags for a scaling, or None and the reason why there are none.

    extended: the groups of layers that the scaling is for; None is the published one.
    """
    groups = list(extended)
    rotating = [group for group in model.groups if group.rotation is not None]
    if len(groups) < len(rotating):
        return None, "flags change all layers, and this is for some of them"
    assert groups[0].rotation is not None
    published = groups[0].rotation.options.get("scaling")
    if isinstance(published, (Llama3, LongRoPE)) or groups[0].rotation.options.get("inv_freq"):
        if scaling is None:
            return [], None
        return None, "the file holds divisors of the published scaling, which no flag removes"
    base = float(groups[0].rotation.options.get("base", 10_000.0))
    width = groups[0].rotation.options.get("rotary_dim") or groups[0].rotation.options["head_dim"]
    unscaled = [] if published is None else ["--rope-scaling", "none"]
    match scaling:
        case None:
            flags: list[str] = []
        case NTK():
            raised = base * float(scaling.factor) ** (width / (width - 2)) if width > 2 else base
            flags = [*unscaled, "--rope-freq-base", f"{raised:.10g}"]
        case Linear():
            flags = ["--rope-scaling", "linear", "--rope-scale", f"{scaling.factor:.10g}"]
        case YaRN() if _is_plain(scaling):
            flags = ["--rope-scaling", "yarn", "--rope-scale", f"{scaling.factor:.10g}"]
            flags += ["--yarn-orig-ctx", str(scaling.original_context)]
            return flags, None
        case _:
            return None, _NO_FLAG
    return [*flags, *_raise_context(model, target)], None


def _is_plain(scaling: YaRN) -> bool:
    """Whether it is the YaRN of the flags: their ramp, and the attention scale 0.1 ln s + 1."""
    plain = YaRN(scaling.factor, scaling.original_context)
    return scaling == plain


def _raise_context(model: ModelPositions, target: int) -> list[str]:
    """The flag that raises the context length in the file."""
    kind = (model.model_type if model.part is None else model.part.model_type) or ""
    name = _ARCHITECTURES.get(kind, kind or "ARCHITECTURE")
    return ["--override-kv", f"{name}.context_length=int:{target}"]
