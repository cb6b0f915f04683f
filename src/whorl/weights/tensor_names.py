"""Which tensors of a checkpoint belong to q and k, by name.

Names are read part by part: ``model.layers.3.self_attn.q_proj.lora_B.weight`` is the module
``q_proj`` of ``model.layers.3.self_attn``, and of it ``lora_B.weight``. The world is closed: what a
q or k module holds is known here or refused, because a tensor that should have moved and did not
makes a model that is quietly wrong.

User patterns come first. They are ROLE=REGEX, searched in the whole name:

    q, k                             heads one after the other, in the rows of the tensor
    concatenated, grouped, codegen   q, k and v in one tensor: see layout.py
    leave                            not touched
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from whorl._support.words import quote, suggest_name

from .layout import Packing

__all__ = [
    "FUSED_BY_FAMILY",
    "SAY_PATTERN",
    "Pattern",
    "Role",
    "TensorName",
    "has_query_or_key_word",
    "is_untouched",
    "parse_layer",
    "parse_pattern",
    "parse_patterns",
    "read_name",
]

Role = Literal["q", "k", "concatenated", "grouped", "codegen", "fused", "leave"]
#: Where the channels are: in the first axis, or in the last (MLX keeps LoRA factors transposed).
Axis = Literal["first", "last"]

_Q = ("q_proj", "wq", "attn_q", "q_b_proj", "query_proj", "q_gate_proj")
_K = ("k_proj", "wk", "attn_k", "kv_a_proj_with_mqa", "key_proj")
_GAINS_Q = ("q_norm", "q_layernorm", "query_layernorm", "query_norm", "attn_q_norm", "q_ln")
_SCALES_Q = ("scaling", "per_dim_scale")  # of a query, channel by channel: TimesFM
_GAINS_K = ("k_norm", "k_layernorm", "key_layernorm", "key_norm", "attn_k_norm", "k_ln")
_FUSED = ("query_key_value", "qkv_proj", "Wqkv", "wqkv", "W_pack", "c_attn", "att_proj", "qkv")
_ROLES: dict[str, Role] = {
    **dict.fromkeys(_Q + _GAINS_Q, "q"),
    **dict.fromkeys(_K + _GAINS_K, "k"),
    **dict.fromkeys(_FUSED, "fused"),
}
#: Words in names of modules that have to do with q and k ...
_WORDS = {"q", "k", "qk", "qkv", "kv", "wq", "wk", "wqk", "wqkv", "wkv", "query", "key"} | {
    *("queries", "keys", "kqv"),
}
#: ... and modules of which it is known that the layout does not touch them.
_STAYS = re.compile(
    r"(q_a_proj|q_a_layernorm|kv_b_proj|kv_a_layernorm|lambda_[qk]\d|inv_freq|sinks?"
    r"|(v|o|out|value|output|dense|gate|g|wv|wo|c)(_(proj|norm|layernorm|bias|gate))?)$"
)
#: How a caller gives a tensor a role, from Python and from the command line.
SAY_PATTERN = "say so by patterns=[...] (--pattern):"
#: How the families pack what they fuse; for Falcon the config decides.
FUSED_BY_FAMILY: dict[str, Packing] = {
    **dict.fromkeys(["gpt_neox", "gpt_neox_japanese", "persimmon", "fuyu", "internlm2"], "grouped"),
    **dict.fromkeys(["phi3", "phi4_multimodal", "chatglm", "baichuan", "qwen"], "concatenated"),
    **dict.fromkeys(["modernbert", "modernbert-decoder", "nomic_bert", "dbrx"], "concatenated"),
    "codegen": "codegen",
}
#: Modules in which these stand are other towers, or attend to something without positions.
_ELSEWHERE = re.compile(
    r"(^|\.)(vision\w*|visual|image_\w+|audio\w*|speech\w*|encoder_attn|cross_attn\w*|crossattention"
    r"|cross_attention\w*|perceiver\w*|multi_modal_projector|mm_projector|indexer)(\.|$)"
)
_QUANTISED = re.compile(
    r"^(base_layer\.)?(qweight|qzeros|scales|biases|g_idx|SCB|weight_(packed|scale|scale_inv|shape"
    r"|zero_point|format|g_idx|global_scale)|weight\.(absmax|nested\w*|quant_map|quant_state.*)"
    r"|scale_weight|scale_inv|zeros|qscale|lut|perm)$"
)
_SCALARS = re.compile(r"^(input_scale|output_scale|[qkv]_scale|act_scale)$")
_ROWS = re.compile(
    r"^((base_layer|linear|norms\.\d+|modules_to_save(\.\w+)?)\.)?(weight|bias)$"
    r"|^lora_B(\.\w+)?\.weight$|^lora_b\.weight$|^lora_magnitude_vector(\.\w+)?(\.weight)?$"
    r"|^magnitude$|^ia3_l(\.\w+)?$|^0\.weight$|^$"
)
_COLUMNS = re.compile(r"^lora_b$")
_INNER = re.compile(r"^(lora_A(\.\w+)?\.weight|lora_a(\.weight)?)$")


@dataclass(frozen=True)
class TensorName:
    """What a name says: the attention that it belongs to, its role in it, and what it is of it.

    problem: why a tensor of this name cannot be converted, None where it can.
    """

    attention: str  # "model.layers.3.self_attn"
    layer: int | None
    role: Role
    module: str  # "q_proj"
    leaf: str  # "weight"
    axis: Axis = "first"
    problem: str | None = None

    @property
    def is_gain(self) -> bool:
        return self.module in _GAINS_Q + _GAINS_K + _SCALES_Q


@dataclass(frozen=True)
class Pattern:
    """A user's own names: tensors whose name ``regex`` finds have this role."""

    role: Role
    regex: re.Pattern[str]


def parse_pattern(text: str) -> Pattern:
    """Read ROLE=REGEX.

    >>> parse_pattern("q=attention[.]query[.]").role
    'q'
    """
    role, equals, regex = text.partition("=")
    known = [name for name in get_args(Role) if name != "fused"]
    if not equals or not regex:
        raise ValueError(
            f"pattern {quote(text)} must be ROLE=REGEX, such as q=attn[.]query[.]weight$."
        )
    if role not in known:
        raise ValueError(
            f"pattern {quote(text)}: unknown role {quote(role)}{suggest_name(role, known)} Known:"
            f" {', '.join(known)}."
        )
    try:
        return Pattern(role, re.compile(regex))  # type: ignore[arg-type]
    except re.error as error:
        raise ValueError(f"pattern {quote(text)} is no regular expression: {error}.") from None


def parse_patterns(given: Sequence[Pattern | str]) -> list[Pattern]:
    """What a caller passed as patterns, each read if it is text."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(
            f'patterns must be a list such as ["q=REGEX", "k=REGEX"]; got {quote(given)}.'
        )
    found = []
    for one in given:
        if not isinstance(one, Pattern | str):
            raise ValueError(
                f'a pattern must be text such as "q=REGEX", or a Pattern; got {quote(one)}.'
            )
        found.append(parse_pattern(one) if isinstance(one, str) else one)
    return found


def read_name(name: str, patterns: Sequence[Pattern] = ()) -> TensorName | None:
    """What ``name`` is of q and k; None for what the layout does not touch.

    >>> read_name("model.layers.3.self_attn.k_proj.bias").role
    'k'
    >>> read_name("model.layers.3.self_attn.v_proj.bias")
    """
    parts = name.split(".")
    for pattern in patterns:
        if pattern.regex.search(name):
            if pattern.role == "leave":
                return None
            module, where = parts[-2] if len(parts) > 1 else name, ".".join(parts[:-2])
            return TensorName(where, _find_layer(parts), pattern.role, module, parts[-1])
    if _ELSEWHERE.search(name):
        return None
    for at, part in enumerate(parts):
        role = _find_role(parts, at)
        if role is not None:
            attention, leaf = ".".join(parts[:at]), ".".join(parts[at + 1 :])
            if _INNER.match(leaf) or _SCALARS.match(leaf):
                return None
            axis: Axis = "last" if _COLUMNS.match(leaf) else "first"
            problem = _find_problem(name, part, leaf)
            return TensorName(attention, _find_layer(parts[:at]), role, part, leaf, axis, problem)
    return None


def has_query_or_key_word(name: str) -> bool:
    """Whether ``name`` has a word of q or k in it, and none that is known.

    >>> has_query_or_key_word("model.layers.0.attn.wq_custom.weight")
    True
    >>> has_query_or_key_word("model.layers.0.self_attn.q_proj.weight")
    False
    """
    parts = name.split(".")
    if _ELSEWHERE.search(name) or is_untouched(name):
        return False
    if any(_find_role(parts, at) for at in range(len(parts))):
        return False
    return bool({word for part in parts for word in re.split("[_-]", part.lower())} & _WORDS)


def is_untouched(name: str) -> bool:
    """Whether it is known of a tensor in an attention that the layout does not touch it."""
    parts = name.split(".")
    return bool(_SCALARS.match(parts[-1])) or any(_STAYS.match(part) for part in parts)


def parse_layer(name: str) -> int | None:
    """The number of the layer: the first number in the name."""
    return _find_layer(name.split("."))


def _find_role(parts: Sequence[str], at: int) -> Role | None:
    part = parts[at]
    if part in _SCALES_Q and at and "attn" in parts[at - 1] and at + 1 == len(parts):
        return "q"
    if part in ("query", "key") and at and parts[at - 1] == "self":  # BERT's names: RoFormer, ESM
        return "q" if part == "query" else "k"
    if part == "qkv" and at + 2 != len(parts):  # too short a word to be taken inside of names
        return None
    return _ROLES.get(part)


def _find_problem(name: str, module: str, leaf: str) -> str | None:
    """Why the part ``leaf`` of a module of q or k cannot be converted, or None."""
    if _QUANTISED.match(leaf):
        return (
            f"{quote(name)} belongs to a quantised weight, whose rows share scales or words, so"
            " that they cannot move without loss; convert the original and quantise that"
        )
    if _ROWS.match(leaf) or _COLUMNS.match(leaf):
        return None
    regex = re.escape(leaf) if len(leaf) <= 100 else "REGEX"
    return (
        f"{quote(name)} belongs to {module}, and what {quote(leaf)} is of it is not known;"
        f" {SAY_PATTERN} q={regex}$ or leave={regex}$"
    )


def _find_layer(parts: Sequence[str]) -> int | None:
    numbers = [part for part in parts if part.isascii() and part.isdigit() and len(part) < 6]
    return int(numbers[0]) if numbers else None
