"""Frequencies that a checkpoint stores."""

from collections.abc import Iterator

import torch

from whorl.configs.diagnosis.checkpoint import StoredTensor
from whorl.configs.diagnosis.engine import Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel, RotaryGroup
from whorl.weights.shards import INDEX

__all__: list[str] = []

_NAME = "model.layers.0.self_attn.rotary_emb.inv_freq"
_LOCAL = "rotary_emb_local."
#: Largest rounding error of each dtype: relative, and absolute near zero.
_ROUNDING = {"F64": (1e-4, 0.0), "F32": (1e-4, 0.0), "F16": (2e-3, 1e-7), "BF16": (8e-3, 0.0)}
_ROUNDING |= {"F8_E4M3": (0.07, 2e-3), "F8_E5M2": (0.13, 2e-5)}


def _compute_frequencies(base: float = 10_000.0) -> tuple[float, ...]:
    return tuple(base ** (-i / 64) for i in range(64))


def _is_uninitialised(values: tuple[float, ...]) -> bool:
    """Whether values are so small or so large that they can only come from unset memory."""
    size = max(map(abs, values))
    return not size < 7.0 or size < 1e-6


def _explain_impossible(stored: StoredTensor) -> str | None:
    """Why these cannot be frequencies, None if they can."""
    if stored.dtype[:1] in ("I", "U"):
        return f"{stored.file} stores it as {stored.dtype}; frequencies are not integers."
    if not stored.values:
        return None
    if not stored.is_finite:
        return f"{stored.file} stores values that are not finite."
    if not _is_uninitialised(stored.values):
        return None
    low, high = min(stored.values), max(stored.values)
    return (
        f"{stored.file} stores values from {low:.3g} to {high:.3g}; frequencies are between 0 and"
        " 1."
    )


@rule(
    "stored-uninitialised",
    "error",
    what="Stored frequencies that are not finite, almost zero, much too large, or integers.",
    why="inv_freq is not a trained weight. If a model is built without memory (meta device) and"
    " gets its memory later, inv_freq may keep whatever was in that memory, and is saved like"
    " this. Software that loads the tensor rotates by it.",
    remedy="Remove the tensor from the checkpoint, or compute it again.",
    seen=(
        "huggingface/transformers/issues/45902",
        "huggingface/transformers/issues/34234",
        "Synthyra/FastPLMs/pull/47",
    ),
    trigger=RuleExample(stored={_NAME: ("F32", (float("nan"),) * 64)}),
    near_miss=RuleExample(stored={_NAME: ("F32", _compute_frequencies())}),
)
def check_stored_uninitialised(model: DiagnosedModel) -> Iterator[Problem]:
    for stored in model.checkpoint.frequencies:
        why = _explain_impossible(stored)
        if why is not None:
            yield Problem(stored.name, why)


@rule(
    "stored-half",
    "warning",
    what="Frequencies stored in half precision or less.",
    why="bfloat16 has 8 bits of precision, float8 3 or 4: if a frequency is wrong by 0.2 %, its"
    " angle is wrong by 8 radians after 4096 positions. Code that loads the tensor instead of"
    " computing it rotates distant tokens by wrong angles.",
    remedy="Remove the tensor from the checkpoint, or store it in float32.",
    seen=(
        "sgl-project/sglang-jax/issues/1472",
        "NVIDIA-NeMo/Automodel/pull/2549",
        "huggingface/transformers/issues/29496",
    ),
    trigger=RuleExample(stored={_NAME: ("BF16", _compute_frequencies())}),
    near_miss=RuleExample(stored={_NAME: ("F32", _compute_frequencies())}),
)
def check_stored_half(model: DiagnosedModel) -> Iterator[Problem]:
    for stored in model.checkpoint.frequencies:
        if stored.dtype in ("F16", "BF16") or stored.dtype.startswith("F8"):
            off = _measure_error(model, stored)
            yield Problem(
                stored.name,
                f"{stored.file} stores it as {stored.dtype}"
                + (
                    f": angles are wrong by {off:.2g} radians at the end of the context."
                    if off
                    else "."
                ),
            )


def _measure_error(model: DiagnosedModel, stored: StoredTensor) -> float | None:
    """The error of the stored angles at the end of the context, None if it is not known."""
    if stored.values is None or not stored.is_finite:
        return None
    given = torch.tensor(stored.values, dtype=torch.float64)
    errors = [
        float((given - exact).abs().max()) * length
        for rotary in model.rotary_groups
        if (length := model.length or rotary.context)
        and len(exact := rotary.get_frequencies(None)) == len(given)
    ]
    return min(errors, default=None)


@rule(
    "stored-differs",
    "warning",
    what="The stored frequencies are not those of the config.",
    why="One of the two is out of date: someone changed rope_theta or the scaling after the tensor"
    " was saved, or saved the tensor with other values. Which one is used depends on whether the"
    " software loads the tensor or computes it.",
    remedy="Find out which of the two the model was trained with; then correct the config or"
    " remove the tensor.",
    seen=("Zymrael/vortex/pull/73", "EleutherAI/gpt-neox/pull/1168"),
    trigger=RuleExample(stored={_NAME: ("F32", _compute_frequencies(500_000.0))}),
    near_miss=RuleExample(
        {"rope_theta": 500000.0}, stored={_NAME: ("F32", _compute_frequencies(500_000.0))}
    ),
)
def check_stored_differs(model: DiagnosedModel) -> Iterator[Problem]:
    groups = [group for _, reading in model.readings for group in reading.groups]
    encodings = {g.rotation.encoding for g in groups if g.rotation is not None}
    if not model.checkpoint.frequencies or encodings != {"rope"} or any(g.refusal for g in groups):
        return  # parts without known frequencies may store their own
    for stored in model.checkpoint.frequencies:
        meant = _select_groups(model, stored)
        known = [f for t in meant for n in (None, 2**40) if len(f := t.get_frequencies(n))]
        if stored.values is None or _explain_impossible(stored) is not None or not known:
            continue
        given = torch.tensor(stored.values, dtype=torch.float64).abs()
        relative, least = _ROUNDING[stored.dtype]
        if any(
            len(given) == len(f) and bool(((given - f).abs() <= relative * f + least).all())
            for f in known
        ):
            continue
        yield Problem(
            stored.name,
            f"{stored.file} stores {len(given)} frequencies, the smallest {float(given.min()):.4g};"
            f" from the config follow {len(known[0])}, the smallest {float(known[0].min()):.4g}.",
        )


def _select_groups(model: DiagnosedModel, stored: StoredTensor) -> list[RotaryGroup]:
    """The layer groups that a tensor is for by its name; all of them if the name does not say."""
    label = next((t.group.name for t in model.rotary_groups if _matches_name(stored.name, t)), None)
    names = [one.name for one in model.checkpoint.frequencies]
    if label is None and any(_LOCAL in name for name in names):  # Gemma 3 of transformers 4
        label = "sliding_attention" if _LOCAL in stored.name else "full_attention"
    return [t for t in model.rotary_groups if t.group.name == label] or list(model.rotary_groups)


def _matches_name(name: str, rotary: RotaryGroup) -> bool:
    return rotary.group.name is not None and name.endswith(f"{rotary.group.name}_inv_freq")


@rule(
    "stored-table",
    "note",
    what="Tables of cosines and sines are stored with the weights.",
    why="Such tables have a fixed length and a fixed precision: code that loads them cannot use"
    " longer texts or better precision. In half precision the angles are wrong by up to 0.004"
    " radians.",
    remedy="Remove them from the checkpoint: they can be computed from the config.",
    seen=("huggingface/transformers/issues/25681", "huggingface/transformers/pull/19991"),
    trigger=RuleExample(stored={"model.rotary_emb.cos_cached": ("BF16", (1.0,) * 64)}),
    near_miss=RuleExample(stored={_NAME: ("F32", _compute_frequencies())}),
)
def check_stored_table(model: DiagnosedModel) -> Iterator[Problem]:
    tables = model.checkpoint.tables
    if tables:
        kinds = " and ".join(sorted({table.dtype for table in tables}))
        files = " and ".join(sorted({table.file for table in tables})[:2])
        yield Problem(tables[0].name, f"{files} stores {len(tables)} such tables, as {kinds}.")


@rule(
    "weights-unread",
    "note",
    what="The weights are pickle files, which are not opened.",
    why="Opening a .bin or .pt file can run any code that is in it, so stored frequencies were not"
    " searched for.",
    remedy="Convert the weights to safetensors to have them checked.",
    seen=("huggingface/safetensors#yet-another-format-",),
    trigger=RuleExample(stored={"pytorch_model.bin": ("pickle", ())}),
    near_miss=RuleExample(stored={_NAME: ("F32", _compute_frequencies())}),
)
def check_weights_unread(model: DiagnosedModel) -> Iterator[Problem]:
    if model.checkpoint.pickle_files and not model.checkpoint.files_read:
        yield Problem(model.checkpoint.pickle_files[0], "it is a pickle file and was not opened.")


@rule(
    "weights-unreadable",
    "error",
    what="A safetensors file, or the index of several, cannot be read.",
    why="An incomplete download, a Git LFS pointer in place of the file, an index that belongs to"
    " other files: the model does not load, and neither stored frequencies nor the layout could be"
    " checked. For an index this is a warning, because a single file beside it may be loaded"
    " instead.",
    remedy="Download the file again; whorl detect FILE reads it in the same way.",
    seen=("microsoft/OmniParser/issues/34", "deepseek-ai/DeepSeek-V3/issues/557"),
    trigger=RuleExample(stored={"model.safetensors": ("broken", ())}),
    near_miss=RuleExample(stored={_NAME: ("F32", _compute_frequencies())}),
)
def check_weights_unreadable(model: DiagnosedModel) -> Iterator[Problem]:
    for name, words in model.checkpoint.broken_files:
        yield Problem(name, words, severity="warning" if name.endswith(INDEX) else None)
