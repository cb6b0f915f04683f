"""The model type."""

import difflib
import unicodedata
from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Case, Symptom, rule
from whorl.configs.diagnosis.patient import Patient, shown
from whorl.configs.huggingface import defaults

from ._vocabulary import spelt

__all__: list[str] = []

#: Keys that change the rotation of some family.
_TELLING = (
    *("kv_lora_rank", "no_rope_layers", "partial_rotary_factor", "position_encoding_2d"),
    *("qk_rope_head_dim", "rope_interleave", "rope_pct", "rope_ratio", "rotary_dim"),
    *("rotary_emb_base", "rotary_emb_fraction", "rotary_emb_interleaved", "rotary_pct"),
    *("rotary_emb_scale_base", "rotary_scaling_factor", "rope_freq_constant", "use_dynamic_ntk"),
    *("use_logn_attn", "attn_rotary_emb", "rotary_ndims"),
)


@rule(
    "no-model-type",
    "error",
    what="A config without a model_type.",
    why="AutoConfig of transformers, vLLM and mlx-lm choose the class of a model by it and stop"
    " without one. Layout, rotated share and layers without rotation follow from that class; here"
    " the keys alone are read, as a plain model has them.",
    remedy="Write the model_type that the published config of the model has.",
    seen=("https://github.com/huggingface/transformers/issues/42381",),
    trigger=Case({"model_type": None}),
    near_miss=Case({"model_type": "llama"}),
)
def no_model_type(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        given = tower.config.get("model_type")
        if not tower.where and (given is None or (isinstance(given, str) and not given.strip())):
            said = "" if tower.config else ": the config is empty"
            what = f"missing{said}" if given is None else f"{shown(given)}, which names none"
            yield Symptom("model_type", f"it is {what}.")


@rule(
    "unknown-family",
    "warning",
    what="A model type that is not known.",
    why="Layout, rotated share, softmax scale and layers without rotation follow from the class of"
    " a model more than from its config. Of an unknown one only the keys are read, as a plain model"
    " has them, and no other rule can say what its code ignores.",
    remedy="Correct model_type; or compare what whorl inspect says with the model's own code.",
    seen=("https://github.com/huggingface/transformers/issues/42590",),
    trigger=Case({"model_type": "LLaMA"}),
    near_miss=Case({"model_type": "llama"}),
)
def unknown_family(patient: Patient) -> Iterator[Symptom]:
    for where, reading in patient.readings:
        name, ids = reading.model_type, {note.id for note in reading.notes}
        unread = "no-sign" in ids and not where  # of parts without a sign most are no models
        if name is None or not ("unknown-family" in ids or unread):
            continue  # two classes of transformers have no name
        path = f"{where}.model_type" if where else "model_type"
        plain = unicodedata.normalize("NFKC", name.lower()[:64])
        near = difflib.get_close_matches(plain, defaults.list_model_types(), n=1, cutoff=0.85)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        config = next((t.config for t in patient.towers if t.path() == where), {})
        telling = [key for key in _TELLING if config.get(key) is not None]
        more = f" What its code makes of {', '.join(telling)} is a guess." if telling else ""
        if unread:
            more = (
                " No key speaks of a rotary embedding either, so whether it rotates is not known."
            )
        yield Symptom(path, f"{spelt(name)} is not known{hint}{more}")
