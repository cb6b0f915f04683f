"""Frequencies that a checkpoint stores."""

from collections.abc import Iterator

import torch

from whorl.configs.diagnosis.checkpoint import Stored
from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.model import Patient
from whorl.configs.diagnosis.rotary_groups import Turning
from whorl.weights.shards import INDEX

__all__: list[str] = []

_NAME = "model.layers.0.self_attn.rotary_emb.inv_freq"
_LOCAL = "rotary_emb_local."
#: Rounding of a value, relative, and the least step near zero.
_ROUNDING = {"F64": (1e-4, 0.0), "F32": (1e-4, 0.0), "F16": (2e-3, 1e-7), "BF16": (8e-3, 0.0)}
_ROUNDING |= {"F8_E4M3": (0.07, 2e-3), "F8_E5M2": (0.13, 2e-5)}


def _ladder(base: float = 10_000.0) -> tuple[float, ...]:
    return tuple(base ** (-i / 64) for i in range(64))


def _remains(values: tuple[float, ...]) -> bool:
    """Whether values can only be what happened to be in memory."""
    size = max(map(abs, values))
    return not size < 7.0 or size < 1e-6


def _impossible(stored: Stored) -> str | None:
    """Why nothing can rotate by it."""
    if stored.dtype[:1] in ("I", "U"):
        return f"{stored.file} stores it as {stored.dtype}; frequencies are fractions of 1."
    if not stored.values:
        return None
    if not stored.finite:
        return f"{stored.file} stores values that are not finite."
    if not _remains(stored.values):
        return None
    low, high = min(stored.values), max(stored.values)
    return (
        f"{stored.file} stores values from {low:.3g} to {high:.3g}; frequencies lie between 0 and"
        " 1."
    )


@rule(
    "stored-uninitialised",
    "error",
    what="Stored frequencies that are not finite, all but zero, far too large, or integers.",
    why="inv_freq is not a trained weight. A model that is built without memory (meta device) and"
    " given some afterwards leaves it as it was found, and saves that; whoever loads the tensor"
    " rotates by it.",
    remedy="Remove the tensor from the checkpoint, or compute it again.",
    seen=(
        "https://github.com/huggingface/transformers/issues/45902",
        "https://github.com/huggingface/transformers/issues/34234",
        "https://github.com/Synthyra/FastPLMs/pull/47",
    ),
    trigger=Case(stored={_NAME: ("F32", (float("nan"),) * 64)}),
    near_miss=Case(stored={_NAME: ("F32", _ladder())}),
)
def stored_uninitialised(patient: Patient) -> Iterator[Symptom]:
    for stored in patient.weights.stored:
        why = _impossible(stored)
        if why is not None:
            yield Symptom(stored.name, why)


@rule(
    "stored-half",
    "warning",
    what="Frequencies stored in half precision or less.",
    why="bfloat16 keeps 8 bits, float8 3 or 4: a frequency that is off by 0.2 % is off by 8 radians"
    " after 4096 positions. Code that loads the tensor, instead of computing it again, turns every"
    " far token wrongly.",
    remedy="Remove the tensor from the checkpoint, or store it in float32.",
    seen=(
        "https://github.com/sgl-project/sglang-jax/issues/1472",
        "https://github.com/NVIDIA-NeMo/Automodel/pull/2549",
        "https://github.com/huggingface/transformers/issues/29496",
    ),
    trigger=Case(stored={_NAME: ("BF16", _ladder())}),
    near_miss=Case(stored={_NAME: ("F32", _ladder())}),
)
def stored_half(patient: Patient) -> Iterator[Symptom]:
    for stored in patient.weights.stored:
        if stored.dtype in ("F16", "BF16") or stored.dtype.startswith("F8"):
            off = _radians(patient, stored)
            yield Symptom(
                stored.name,
                f"{stored.file} stores it as {stored.dtype}"
                + (
                    f", which is off by {off:.2g} radians at the end of the context."
                    if off
                    else "."
                ),
            )


def _radians(patient: Patient, stored: Stored) -> float | None:
    """How far the stored angles are off at the end of the context, where that is known."""
    if stored.values is None or not stored.finite:
        return None
    given = torch.tensor(stored.values, dtype=torch.float64)
    errors = [
        float((given - exact).abs().max()) * length
        for turned in patient.turning
        if (length := patient.length or turned.model.context)
        and len(exact := turned.frequencies(None)) == len(given)
    ]
    return min(errors, default=None)


@rule(
    "stored-differs",
    "warning",
    what="Stored frequencies that are not those of the config.",
    why="One of the two is out of date: rope_theta or the scaling was changed after the tensor was"
    " saved, or the other way round. Which one runs depends on whether the software loads the"
    " tensor or computes it.",
    remedy="Find out which the model was trained with; then correct the config or remove the"
    " tensor.",
    seen=(
        "https://github.com/Zymrael/vortex/pull/73",
        "https://github.com/EleutherAI/gpt-neox/pull/1168",
    ),
    trigger=Case(stored={_NAME: ("F32", _ladder(500_000.0))}),
    near_miss=Case({"rope_theta": 500000.0}, stored={_NAME: ("F32", _ladder(500_000.0))}),
)
def stored_differs(patient: Patient) -> Iterator[Symptom]:
    groups = [group for _, model in patient.readings for group in model.groups]
    encodings = {g.rotation.encoding for g in groups if g.rotation is not None}
    if not patient.weights.stored or encodings != {"rope"} or any(g.refusal for g in groups):
        return  # other towers may store frequencies of their own
    for stored in patient.weights.stored:
        meant = _meant(patient, stored)
        known = [f for t in meant for n in (None, 2**40) if len(f := t.frequencies(n))]
        if stored.values is None or _impossible(stored) is not None or not known:
            continue
        given = torch.tensor(stored.values, dtype=torch.float64).abs()
        relative, least = _ROUNDING[stored.dtype]
        if any(
            len(given) == len(f) and bool(((given - f).abs() <= relative * f + least).all())
            for f in known
        ):
            continue
        yield Symptom(
            stored.name,
            f"{stored.file} stores {len(given)} frequencies down to {float(given.min()):.4g}; the"
            f" config gives {len(known[0])} down to {float(known[0].min()):.4g}.",
        )


def _meant(patient: Patient, stored: Stored) -> list[Turning]:
    """The layers that a tensor is for, by its name where that says so; else all of them."""
    label = next((t.group.name for t in patient.turning if _is_named(stored.name, t)), None)
    names = [one.name for one in patient.weights.stored]
    if label is None and any(_LOCAL in name for name in names):  # Gemma 3 of transformers 4
        label = "sliding_attention" if _LOCAL in stored.name else "full_attention"
    return [t for t in patient.turning if t.group.name == label] or list(patient.turning)


def _is_named(name: str, turned: Turning) -> bool:
    return turned.group.name is not None and name.endswith(f"{turned.group.name}_inv_freq")


@rule(
    "stored-table",
    "note",
    what="Tables of cosines and sines stored with the weights.",
    why="They end at some length and are of some precision: code that loads them cannot go past"
    " the one, and keeps the other. In half precision the angles are off by up to 0.004 radians.",
    remedy="Remove them from the checkpoint: they follow from the config.",
    seen=(
        "https://github.com/huggingface/transformers/issues/25681",
        "https://github.com/huggingface/transformers/pull/19991",
    ),
    trigger=Case(stored={"model.rotary_emb.cos_cached": ("BF16", (1.0,) * 64)}),
    near_miss=Case(stored={_NAME: ("F32", _ladder())}),
)
def stored_table(patient: Patient) -> Iterator[Symptom]:
    tables = patient.weights.tables
    if tables:
        kinds = " and ".join(sorted({table.dtype for table in tables}))
        files = " and ".join(sorted({table.file for table in tables})[:2])
        yield Symptom(tables[0].name, f"{files} stores {len(tables)} such tables, as {kinds}.")


@rule(
    "weights-unread",
    "note",
    what="Weights in pickles, which are not opened.",
    why="Opening a .bin or .pt file can run any code that stands in it, so stored frequencies"
    " were not looked for.",
    remedy="Convert the weights to safetensors to have them looked at.",
    seen=("https://github.com/huggingface/safetensors#yet-another-format-",),
    trigger=Case(stored={"pytorch_model.bin": ("pickle", ())}),
    near_miss=Case(stored={_NAME: ("F32", _ladder())}),
)
def weights_unread(patient: Patient) -> Iterator[Symptom]:
    if patient.weights.unread and not patient.weights.read:
        yield Symptom(patient.weights.unread[0], "it holds pickles and was not opened.")


@rule(
    "weights-unreadable",
    "error",
    what="A safetensors file, or the index of several, that cannot be read.",
    why="A download that broke off, a pointer of Git LFS in place of the file, an index of other"
    " shards: the model does not load, and neither stored frequencies nor the layout could be"
    " looked at. An index may stand beside a whole file that is loaded instead, so it is a"
    " warning.",
    remedy="Take the file from its source again; whorl detect FILE reads it as this does.",
    seen=(
        "https://github.com/microsoft/OmniParser/issues/34",
        "https://github.com/deepseek-ai/DeepSeek-V3/issues/557",
    ),
    trigger=Case(stored={"model.safetensors": ("broken", ())}),
    near_miss=Case(stored={_NAME: ("F32", _ladder())}),
)
def weights_unreadable(patient: Patient) -> Iterator[Symptom]:
    for name, words in patient.weights.unreadable:
        yield Symptom(name, words, severity="warning" if name.endswith(INDEX) else None)
