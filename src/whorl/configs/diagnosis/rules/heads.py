"""How wide a head is, and that its channels rotate in pairs."""

from collections.abc import Iterator

from whorl.configs.diagnosis.engine import Case, Edit, Symptom, rule
from whorl.configs.diagnosis.patient import Patient, shown, whole
from whorl.configs.huggingface import classes

__all__: list[str] = []


@rule(
    "odd-head",
    "error",
    what="An odd number of rotated channels.",
    why="Channels rotate in pairs. transformers refuses an odd head that is rotated whole, and its"
    " YaRN stops on any odd width; other code leaves the last channel out without a word.",
    remedy="Make head_dim even; for an odd share of it, change partial_rotary_factor.",
    seen=(
        "https://github.com/allenai/OLMo-core/pull/555",
        "https://github.com/ohdearquant/lattice/issues/401",
    ),
    trigger=Case({"hidden_size": 2016, "num_attention_heads": 32}),
    near_miss=Case({"hidden_size": 2048, "num_attention_heads": 32}),
)
def odd_head(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        if not patient.rotates(tower):
            continue
        head = tower.head_dim
        shares = [(b.share, b.kind) for b in tower.blocks]
        shares = shares or [(tower.number("partial_rotary_factor") or 1.0, "default")]
        for share, kind in shares:
            width = None if head is None or not 0 < share <= 1 else int(head * share)
            if width is not None and width % 2 and (width == head or kind == "yarn"):
                key = "qk_rope_head_dim" if tower.config.get("qk_rope_head_dim") else "head_dim"
                yield Symptom(
                    tower.path(key),
                    f"{width} of the {head} channels of a head rotate, and {width} is odd.",
                    remedy=f"Make {key} even; for an odd share of it, change"
                    " partial_rotary_factor.",
                )
                break


@rule(
    "odd-share",
    "note",
    what="partial_rotary_factor makes an odd number of channels.",
    why="transformers rounds up to a whole pair, other readers round down, and then every frequency"
    " differs, because the exponent is divided by the width.",
    remedy="Choose a partial_rotary_factor that gives an even width.",
    seen=("https://github.com/ohdearquant/lattice/issues/401",),
    trigger=Case(
        {
            "model_type": "glm4_moe",
            "head_dim": 42,
            "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
        }
    ),
    near_miss=Case(
        {
            "model_type": "glm4_moe",
            "head_dim": 128,
            "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 10000.0},
        }
    ),
)
def odd_share(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        head, share = block.tower.head_dim, block.share
        if head is None or not 0 < share < 1 or block.kind in ("yarn", "proportional"):
            continue
        width = int(head * share)
        if width % 2:
            yield Symptom(
                block.path("partial_rotary_factor"),
                f"{shown(share)} of {head} channels are {width}; transformers rotates {width + 1}.",
            )


@rule(
    "head-not-whole",
    "note",
    what="hidden_size is no multiple of num_attention_heads, and head_dim is missing.",
    why="transformers takes hidden_size // num_attention_heads, rounded down; other readers"
    " stop, or take a width that the projections do not have.",
    remedy="Write head_dim.",
    seen=("https://github.com/huggingface/transformers/pull/32495",),
    trigger=Case({"model_type": "mistral", "hidden_size": 4100}),
    near_miss=Case({"model_type": "mistral", "hidden_size": 4100, "head_dim": 128}),
)
def head_not_whole(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        hidden, heads = (whole(tower.config.get(k)) for k in ("hidden_size", "num_attention_heads"))
        named = any(tower.config.get(k) for k in ("head_dim", "qk_rope_head_dim", "kv_channels"))
        named = named or tower.config.get("attention_head_dim") is not None
        if tower.family in classes.HEADS_DIVIDE:
            continue  # heads-refused says it
        if hidden and heads and hidden % heads and not named and patient.rotates(tower):
            yield Symptom(
                tower.path("hidden_size"),
                f"{hidden} / {heads} = {hidden / heads:.4g}, and no head_dim says the width.",
            )


@rule(
    "head-dim-explicit",
    "note",
    what="head_dim is not hidden_size / num_attention_heads.",
    why="That is allowed, and Gemma, Qwen3 and Mistral-Nemo do it. Software that divides instead of"
    " reading head_dim builds the ladder of another width.",
    remedy="Nothing in the config: check that your software reads head_dim.",
    seen=(
        "https://github.com/huggingface/candle/issues/2358",
        "https://github.com/InternLM/lmdeploy/pull/2761",
        "https://github.com/huggingface/transformers/pull/32495",
    ),
    trigger=Case({"hidden_size": 5120, "head_dim": 128}),
    near_miss=Case({"hidden_size": 4096, "head_dim": 128}),
)
def head_dim_explicit(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        names = ("head_dim", "hidden_size", "num_attention_heads")
        head, hidden, heads = (whole(tower.config.get(k)) for k in names)
        if not (head and hidden and heads) or tower.config.get("qk_rope_head_dim") is not None:
            continue
        if head * heads != hidden and patient.rotates(tower):
            yield Symptom(
                tower.path("head_dim"),
                f"head_dim is {head}, and {hidden} / {heads} = {hidden / heads:.4g}.",
            )


@rule(
    "head-dim-null",
    "error",
    what="head_dim null with a scaling that needs it.",
    why="The dynamic, yarn and longrope functions of transformers take head_dim as it is when the"
    " attribute exists; null times partial_rotary_factor is a TypeError when the model is built."
    " Most classes keep a null that is written; Mixtral, MiniMax, Ministral and Hunyuan have one"
    " where a config says nothing.",
    remedy="Write head_dim = hidden_size / num_attention_heads.",
    seen=(
        "https://github.com/gradients-ai/G.O.D/pull/1229",
        "https://github.com/vllm-project/vllm/pull/18443",
    ),
    trigger=Case(
        {
            "model_type": "mixtral",
            "head_dim": None,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 1024,
            },
        }
    ),
    near_miss=Case({"model_type": "mixtral", "head_dim": None, "rope_theta": 1000000.0}),
)
def head_dim_null(patient: Patient) -> Iterator[Symptom]:
    for block in patient.blocks:
        tower = block.tower
        if classes.has_null_head(tower.config, tower.family, block.kind):
            head, edits = tower.head_dim, ()
            yield Symptom(
                tower.path("head_dim"),
                f"{tower.family} with rope_type {block.kind} does not load without a head_dim.",
                edits=(Edit("set", (*tower.where, "head_dim"), head),) if head else edits,
            )


@rule(
    "head-dim-refused",
    "error",
    what="A head_dim in a class that computes it, or another than its rotated part.",
    why="Falcon's config has a property of that name, which cannot be set: AttributeError;"
    " DeepSeek-OCR-2 puts its own in place of it. Classes with latent attention take head_dim for"
    " the width of the rotated part, so that one which does not fit qk_rope_head_dim makes a table"
    " of another width, and the first text stops.",
    remedy="Remove head_dim; with latent attention the widths are qk_rope_head_dim and"
    " qk_nope_head_dim.",
    seen=("https://github.com/ggml-org/llama.cpp/pull/14103",),
    trigger=Case({"model_type": "deepseek_v3", "head_dim": 128, "qk_rope_head_dim": 64}),
    near_miss=Case({"model_type": "deepseek_v3", "head_dim": 64, "qk_rope_head_dim": 64}),
)
def head_dim_refused(patient: Patient) -> Iterator[Symptom]:
    for tower in patient.towers:
        why = classes.explain_wrong_head(tower.config, tower.family)
        why = why or classes.explain_replaced_head(tower.config, tower.family)
        if why is not None:
            edits = (Edit("remove", (*tower.where, "head_dim")),)
            yield Symptom(tower.path("head_dim"), f"{why}.", edits=edits)
