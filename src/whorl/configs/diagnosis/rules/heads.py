"""The width of a head, whose channels rotate in pairs."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Edit, Problem, RuleExample, rule
from whorl.configs.diagnosis.model import DiagnosedModel
from whorl.configs.diagnosis.parts import format_value
from whorl.configs.huggingface import classes

from ._examples import build_yarn

__all__: list[str] = []


@rule(
    "odd-head",
    "error",
    what="An odd number of rotated channels.",
    why="Channels rotate in pairs. transformers refuses an odd head_dim if the whole head rotates,"
    " and its YaRN stops for any odd width; other code leaves out the last channel without a"
    " message.",
    remedy="Make head_dim even; if only the rotated share of it is odd, change"
    " partial_rotary_factor.",
    seen=("allenai/OLMo-core/pull/555", "ohdearquant/lattice/issues/401"),
    trigger={"hidden_size": 2016, "num_attention_heads": 32},
    near_miss={"hidden_size": 2048},
)
def check_odd_head(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        if not model.has_rotary_layers(part):
            continue
        head = part.head_dim
        shares = [(b.rotated_share, b.rope_type) for b in part.used_parameters]
        shares = shares or [(part.get_number("partial_rotary_factor") or 1.0, "default")]
        for share, kind in shares:
            width = None if head is None or not 0 < share <= 1 else int(head * share)
            if width is not None and width % 2 and (width == head or kind == "yarn"):
                key = "qk_rope_head_dim" if part.keys.get("qk_rope_head_dim") else "head_dim"
                yield Problem(
                    part.path(key),
                    f"{width} of the {head} channels of a head rotate, and {width} is odd.",
                    remedy=f"Make {key} even; if only the rotated share of it is odd, change"
                    " partial_rotary_factor.",
                )
                break


@rule(
    "odd-share",
    "note",
    what="partial_rotary_factor gives an odd number of channels.",
    why="transformers rounds up to a whole pair, other software rounds down. Then every frequency"
    " differs, because the exponent is divided by the width.",
    remedy="Choose a partial_rotary_factor that gives an even width.",
    seen=("ohdearquant/lattice/issues/401",),
    trigger={
        "model_type": "glm4_moe",
        "head_dim": 42,
        "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
    },
    near_miss={"head_dim": 128},
)
def check_odd_share(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        head, share = rope.part.head_dim, rope.rotated_share
        if head is None or not 0 < share < 1 or rope.rope_type in ("yarn", "proportional"):
            continue
        width = int(head * share)
        if width % 2:
            yield Problem(
                rope.path("partial_rotary_factor"),
                f"{format_value(share)} of {head} channels are {width}; transformers rotates"
                f" {width + 1}.",
            )


@rule(
    "head-not-whole",
    "note",
    what="hidden_size is not a multiple of num_attention_heads, and head_dim is missing.",
    why="transformers uses hidden_size // num_attention_heads, rounded down; other software stops,"
    " or uses a width that does not match the projections.",
    remedy="Write head_dim.",
    seen=("huggingface/transformers/pull/32495",),
    trigger={"model_type": "mistral", "hidden_size": 4100},
    near_miss={"head_dim": 128},
)
def check_head_not_whole(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        hidden, heads = (part.get_whole(k) for k in ("hidden_size", "num_attention_heads"))
        named = any(part.keys.get(k) for k in ("head_dim", "qk_rope_head_dim", "kv_channels"))
        named = named or part.has("attention_head_dim")
        if part.family in classes.HEADS_DIVIDE:
            continue  # heads-refused reports it
        if hidden and heads and hidden % heads and not named and model.has_rotary_layers(part):
            yield Problem(
                part.path("hidden_size"),
                f"{hidden} / {heads} = {hidden / heads:.4g}, and there is no head_dim.",
            )


@rule(
    "head-dim-explicit",
    "note",
    what="head_dim is not hidden_size / num_attention_heads.",
    why="That is allowed, and Gemma, Qwen3 and Mistral-Nemo do it. Software that divides instead"
    " of reading head_dim computes frequencies for another width.",
    remedy="Nothing in the config: check that your software reads head_dim.",
    seen=(
        "huggingface/candle/issues/2358",
        "InternLM/lmdeploy/pull/2761",
        "huggingface/transformers/pull/32495",
    ),
    trigger={"hidden_size": 5120, "head_dim": 128},
    near_miss={"hidden_size": 4096},
)
def check_head_dim_explicit(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        names = ("head_dim", "hidden_size", "num_attention_heads")
        head, hidden, heads = (part.get_whole(k) for k in names)
        if not (head and hidden and heads) or part.has("qk_rope_head_dim"):
            continue
        if head * heads != hidden and model.has_rotary_layers(part):
            yield Problem(
                part.path("head_dim"),
                f"head_dim is {head}, but {hidden} / {heads} = {hidden / heads:.4g}.",
            )


@rule(
    "head-dim-null",
    "error",
    what="head_dim is null, and the scaling needs it.",
    why="The dynamic, yarn and longrope functions of transformers use the attribute head_dim if"
    " there is one; null times partial_rotary_factor is a TypeError when the model is built. Most"
    " classes keep a null that is written in the config; Mixtral, MiniMax, Ministral and Hunyuan"
    " have null by default.",
    remedy="Write head_dim = hidden_size / num_attention_heads.",
    seen=("gradients-ai/G.O.D/pull/1229", "vllm-project/vllm/pull/18443"),
    trigger={"model_type": "mixtral", "head_dim": None, "rope_scaling": build_yarn()},
    near_miss=RuleExample({"model_type": "mixtral", "head_dim": None, "rope_theta": 1000000.0}),
)
def check_head_dim_null(model: DiagnosedModel) -> Iterator[Problem]:
    for rope in model.used_parameters:
        part = rope.part
        if classes.has_null_head(part.keys, part.family, rope.rope_type):
            head, edits = part.head_dim, ()
            yield Problem(
                part.path("head_dim"),
                f"{part.family} with rope_type {rope.rope_type} does not load without a head_dim.",
                edits=(Edit("set", (*part.where, "head_dim"), head),) if head else edits,
            )


@rule(
    "head-dim-refused",
    "error",
    what="A head_dim in a class that computes it, or one that differs from the rotated part.",
    why="Falcon's config has a property with this name that cannot be set: AttributeError."
    " DeepSeek-OCR-2 replaces it by its own value. Classes with latent attention take head_dim for"
    " the width of the rotated part; if it differs from qk_rope_head_dim, their table has the"
    " wrong width, and the model stops at the first text.",
    remedy="Remove head_dim; with latent attention the widths are qk_rope_head_dim and"
    " qk_nope_head_dim.",
    seen=("ggml-org/llama.cpp/pull/14103",),
    trigger={"model_type": "deepseek_v3", "head_dim": 128, "qk_rope_head_dim": 64},
    near_miss={"head_dim": 64},
)
def check_head_dim_refused(model: DiagnosedModel) -> Iterator[Problem]:
    for part in model.parts:
        why = classes.explain_wrong_head(part.keys, part.family)
        why = why or classes.explain_replaced_head(part.keys, part.family)
        if why is not None:
            edits = (Edit("remove", (*part.where, "head_dim")),)
            yield Problem(part.path("head_dim"), f"{why}.", edits=edits)
