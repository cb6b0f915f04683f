"""The model type."""

import difflib
import unicodedata
from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Problem, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import format_value
from whorl.configs.huggingface import defaults

from ._vocabulary import quote_name

__all__: list[str] = []

#: Keys that change the rotation in some families.
_ROTATION_KEYS = (
    *("kv_lora_rank", "no_rope_layers", "partial_rotary_factor", "position_encoding_2d"),
    *("qk_rope_head_dim", "rope_interleave", "rope_pct", "rope_ratio", "rotary_dim"),
    *("rotary_emb_base", "rotary_emb_fraction", "rotary_emb_interleaved", "rotary_pct"),
    *("rotary_emb_scale_base", "rotary_scaling_factor", "rope_freq_constant", "use_dynamic_ntk"),
    *("use_logn_attn", "attn_rotary_emb", "rotary_ndims"),
)


@rule(
    "no-model-type",
    "error",
    what="The config has no model_type.",
    why="transformers (AutoConfig), vLLM and mlx-lm choose the class of a model by model_type, and"
    " stop without it. The layout, the rotated share and layers without rotation depend on that"
    " class. Here only the keys are read, as in a plain rotary model.",
    remedy="Write the model_type of the published config of the model.",
    seen=("huggingface/transformers/issues/42381",),
    trigger={"model_type": None},
    near_miss={"model_type": "llama"},
)
def check_no_model_type(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        given = part.keys.get("model_type")
        if not part.where and (given is None or (isinstance(given, str) and not given.strip())):
            empty = "" if part.keys else ": the config is empty"
            what = (
                f"missing{empty}" if given is None else f"{format_value(given)}, which is no name"
            )
            yield Problem("model_type", f"it is {what}.")


@rule(
    "unknown-family",
    "warning",
    what="The model_type is not known.",
    why="The layout, the rotated share, the softmax scale and layers without rotation depend more"
    " on the class of a model than on its config. For an unknown class only the keys are read, as"
    " in a plain rotary model, and no other rule can say which keys its code ignores.",
    remedy="Correct model_type; or compare the output of whorl inspect with the model's own code.",
    seen=("huggingface/transformers/issues/42590",),
    trigger={"model_type": "LLaMA"},
    near_miss={"model_type": "llama"},
)
def check_unknown_family(model: DiagnosedModel) -> Iterator[Problem]:
    for part, reading in model.readings:
        name, ids = reading.model_type, {note.id for note in reading.notes}
        unread = "no-sign" in ids and not part.where  # most parts without rope keys are no models
        if name is None or not ("unknown-family" in ids or unread):
            continue  # two classes of transformers have no model_type
        plain = unicodedata.normalize("NFKC", name.lower()[:64])
        near = difflib.get_close_matches(plain, defaults.list_model_types(), n=1, cutoff=0.85)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        telling = [key for key in _ROTATION_KEYS if part.has(key)]
        more = f" How its code uses {', '.join(telling)} is a guess." if telling else ""
        if unread:
            more = (
                " It has no key of a rotary embedding either, so whether it rotates is not known."
            )
        yield Problem(part.path("model_type"), f"{quote_name(name)} is not known{hint}{more}")
