"""Published claims about encodings, as numbers that a comparison can measure.

There are two kinds, because they are different questions:

    speed    how fast an encoding learns: steps to reach a loss
    learned  how well it does when it has learned: losses at multiples of the trained length
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .thresholds import HOLDS

__all__ = ["CLAIMS", "FAR", "RISES", "Claim", "ClaimKind", "LossFunction", "Measure", "build_rise"]

ClaimKind = Literal["speed", "learned"]
#: Function of a row and a multiple of the trained length: the loss of one seed or window.
LossFunction = Callable[[str, int], float]

FAR = 4  # times the trained length
_PAST = (2, FAR, 16)
RISES = HOLDS["loss"]  # a larger rise counts as one


@dataclass(frozen=True)
class Measure:
    """A number that a claim says is above its bound, and what it is.

    compute: a sum of losses, each with a factor.
    """

    label: str
    compute: Callable[[LossFunction], float]


@dataclass(frozen=True)
class Claim:
    """A published claim.

    published: who reported what. needs: the rows that it compares; a claim of kind "speed" says
    that the first needs fewer steps than the second. measures: numbers that must all be above
    ``bound``; none for "speed". multiples: of the trained length, where losses are taken.
    needs_rope_rise: whether it means nothing unless RoPE's loss rises.
    """

    id: str
    kind: ClaimKind
    claim: str
    published: str
    url: str
    needs: tuple[str, ...]
    measures: tuple[Measure, ...] = ()
    multiples: tuple[int, ...] = (1, FAR)
    bound: float = 0.0
    needs_rope_rise: bool = False


def build_rise(name: str) -> Measure:
    """The loss at 4 times the trained length minus that at the trained length."""
    return Measure(f"rise of {name} at {FAR}x", lambda loss: _compute_rise(loss, name))


def _compute_rise(loss: LossFunction, name: str) -> float:
    return loss(name, FAR) - loss(name, 1)


def _build_spared_rise(name: str, *, trained_as: str | None = None) -> Measure:
    """Half of RoPE's rise, less that of ``name``; a scaling rises from RoPE's own loss."""

    def compute(loss: LossFunction) -> float:
        own = loss(name, FAR) - loss(trained_as or name, 1)
        return 0.5 * _compute_rise(loss, "rope") - own

    return Measure(f"half of the rise of rope at {FAR}x, less that of {name}", compute)


def _build_smaller_rise(name: str, other: str) -> Measure:
    def compute(loss: LossFunction) -> float:
        return _compute_rise(loss, other) - _compute_rise(loss, name)

    return Measure(f"rise of {other} at {FAR}x, less that of {name}", compute)


def _build_lower_loss(name: str, other: str, times: int) -> Measure:
    def compute(loss: LossFunction) -> float:
        return loss(other, times) - loss(name, times)

    return Measure(f"loss of {other} at {times}x, less that of {name}", compute)


_PRESS = "https://arxiv.org/abs/2108.12409"
_KERPLE = "https://arxiv.org/abs/2205.09921"
_NOPE = "https://arxiv.org/abs/2305.19466"
_YARN = "https://arxiv.org/abs/2309.00071"
_ELEUTHER = "https://blog.eleuther.ai/rotary-embeddings/"
_ELEUTHER_RUN = "Biderman et al. 2021: 125M parameters, OpenWebText2, 55k steps"
_PRESS_ORDER = (
    "Press et al. 2021, Figure 1: on WikiText-103, trained on 512 and on 1024 tokens, sinusoidal"
    " positions degrade first, then rotary ones, then T5's bias; ALiBi does not"
)
_KERPLE_RUN = (
    "Chi et al. 2022: three corpora, trained on 512 tokens, evaluated up to 16k; the logarithmic"
    " variant extrapolates best"
)
_NOPE_RUN = (
    "Kazemnejad et al. 2023: decoders without positions generalize to longer inputs better than"
    " with them, on reasoning and mathematical tasks (here: the loss on text)"
)


def _state_rise(name: str, title: str, published: str, url: str) -> Claim:
    return Claim(
        f"{name}-rises",
        "learned",
        f"{title} do not extrapolate: the loss rises at {FAR} times the trained length",
        published,
        url,
        (name,),
        (build_rise(name),),
        bound=RISES,
    )


def _state_spared_rise(name: str, title: str, published: str, url: str) -> Claim:
    return Claim(
        f"{name}-holds",
        "learned",
        f"{title} rises much less than RoPE at {FAR} times the trained length",
        published,
        url,
        (name, "rope"),
        (_build_spared_rise(name),),
        needs_rope_rise=True,
    )


def _state_order(name: str, other: str, text: str) -> Claim:
    """That ``name`` has a lower loss than ``other`` at 2, 4 and 16 times the trained length."""
    return Claim(
        f"{name}-over-{other}",
        "learned",
        f"{text} at 2, 4 and 16 times the trained length",
        _PRESS_ORDER,
        _PRESS,
        (name, other),
        tuple(_build_lower_loss(name, other, times) for times in _PAST),
        multiples=_PAST,
    )


def _state_kerple(other: str, title: str) -> Claim:
    return Claim(
        f"kerple-over-{other}",
        "learned",
        f"Kerple (logarithmic) has a lower loss than {title} at {FAR} times the trained length",
        _KERPLE_RUN,
        _KERPLE,
        ("kerple", other),
        (_build_lower_loss("kerple", other, FAR),),
        multiples=(FAR,),
    )


def _state_nope(other: str, title: str) -> Claim:
    return Claim(
        f"nope-over-{other}",
        "learned",
        f"Without positions (NoPE) the loss rises less than with {title} at {FAR} times the trained"
        " length",
        _NOPE_RUN,
        _NOPE,
        ("nope", other),
        (_build_smaller_rise("nope", other),),
        needs_rope_rise=other == "rope",
    )


def _state_speed(other: str, title: str, published: str) -> Claim:
    return Claim(
        f"rope-beats-{other}",
        "speed",
        f"RoPE needs fewer steps than {title} to reach the same loss",
        f"{_ELEUTHER_RUN}: {published}",
        _ELEUTHER,
        ("rope", other),
        multiples=(1,),
    )


def _state_gain(claim: str, text: str, published: str, url: str, needs: tuple[str, ...]) -> Claim:
    """That the first row of ``needs`` has a lower loss than the others at the trained length."""
    return Claim(
        claim,
        "learned",
        text,
        published,
        url,
        needs,
        tuple(_build_lower_loss(needs[0], other, 1) for other in needs[1:]),
        multiples=(1,),
    )


_SCALINGS = ("rope+linear", "rope+ntk", "rope+ntk_by_parts", "rope+yarn")


def _state_scaling(claim: str, text: str, published: str, measures: tuple[Measure, ...]) -> Claim:
    return Claim(
        claim,
        "learned",
        f"{text} at {FAR} times the trained length, without fine-tuning",
        published,
        _YARN,
        _SCALINGS,
        measures,
        multiples=(FAR,),
    )


_EXTRAPOLATION = (
    _state_rise(
        "learned",
        "Learned positions",
        "by construction: no row past the trained length was ever trained",
        "",
    ),
    _state_rise(
        "sinusoidal",
        "Sinusoidal positions",
        "Press et al. 2021, Figure 1: perplexity rises soon after the trained length",
        _PRESS,
    ),
    Claim(
        "rope-degrades",
        "learned",
        f"RoPE degrades: its loss rises at {FAR} times the trained length",
        "Peng et al. 2023, Table 6: perplexity of Mistral 7B 36.8 at 16k without an extension,"
        " 2.65 with YaRN",
        _YARN,
        ("rope",),
        (build_rise("rope"),),
        bound=RISES,
    ),
    _state_spared_rise(
        "alibi",
        "ALiBi",
        "Press et al. 2021, abstract: 1.3B parameters trained on 1024 tokens reach at 2048 the"
        " perplexity of a sinusoidal model trained on 2048",
        _PRESS,
    ),
    _state_spared_rise("kerple", "Kerple", _KERPLE_RUN, _KERPLE),
    _state_spared_rise(
        "t5",
        "T5's bias",
        "Press et al. 2021, Figure 1: T5's bias extrapolates further than rotary",
        _PRESS,
    ),
    _state_order("rope", "sinusoidal", "RoPE has a lower loss than sinusoidal positions"),
    _state_order("t5", "rope", "T5's bias has a lower loss than RoPE"),
    _state_order("alibi", "t5", "ALiBi has a lower loss than T5's bias"),
    _state_kerple("t5", "T5's bias"),
    _state_kerple("alibi", "ALiBi"),
    _state_nope("rope", "RoPE"),
    _state_nope("alibi", "ALiBi"),
    _state_nope("t5", "T5's bias"),
    Claim(
        "xpos-over-rope",
        "learned",
        f"XPos rises less than RoPE at {FAR} times the trained length",
        "Sun et al. 2022: perplexity at lengths past the trained one stays lower with XPos than"
        " with RoPE (they also limit the attention to blocks; here it is whole)",
        "https://arxiv.org/abs/2212.10554",
        ("xpos", "rope"),
        (_build_smaller_rise("xpos", "rope"),),
        needs_rope_rise=True,
    ),
)

_WITHIN_LENGTH = (
    _state_gain(
        "rope-below-learned",
        "RoPE ends at a lower loss than learned positions within the trained length",
        f"{_ELEUTHER_RUN}: validation loss 2.759 with rotary, 2.809 learned",
        _ELEUTHER,
        ("rope", "learned"),
    ),
    _state_gain(
        "rope-below-t5",
        "RoPE ends at a lower loss than T5's bias within the trained length",
        f"{_ELEUTHER_RUN}: validation loss 2.759 with rotary, 2.801 with T5's bias",
        _ELEUTHER,
        ("rope", "t5"),
    ),
    _state_gain(
        "deberta-gains",
        "DeBERTa's scores give a lower loss than learned positions within the trained length",
        "He et al. 2020: with half of the training data better than RoBERTa, which has learned"
        " positions, on MNLI (91.1 % against 90.2 %), SQuAD 2.0 and RACE; they train encoders",
        "https://arxiv.org/abs/2006.03654",
        ("deberta", "learned"),
    ),
    _state_gain(
        "transformer-xl-gains",
        "Transformer-XL's scores give a lower loss than Shaw's and than sinusoidal positions"
        " within the trained length",
        "Dai et al. 2019, ablation on WikiText-103: lower perplexity with their encoding than with"
        " that of Shaw et al., and than with sinusoidal positions",
        "https://arxiv.org/abs/1901.02860",
        ("transformer_xl", "shaw", "sinusoidal"),
    ),
)

_OF_SCALINGS = (
    Claim(
        "yarn-carries",
        "learned",
        f"YaRN carries RoPE to {FAR} times the trained length: most of the rise is gone",
        "Peng et al. 2023, Table 6: perplexity of Mistral 7B at 16k 36.8 without, 2.65 with YaRN"
        " (fine-tuned for it; here as it is)",
        _YARN,
        ("rope", "rope+yarn"),
        (_build_spared_rise("rope+yarn", trained_as="rope"),),
        needs_rope_rise=True,
    ),
    _state_scaling(
        "linear-worst",
        "Linear scaling of RoPE has a higher loss than NTK, NTK-by-parts and YaRN",
        "Peng et al. 2023: linear interpolation loses high frequencies, which the others keep;"
        " Chen et al. 2023 (https://arxiv.org/abs/2306.15595) fine-tune for it",
        tuple(_build_lower_loss(other, "rope+linear", FAR) for other in _SCALINGS[1:]),
    ),
    _state_scaling(
        "yarn-best",
        "YaRN has a lower loss than Linear, NTK and NTK-by-parts scaling of RoPE",
        "Peng et al. 2023: YaRN extends Llama 2 better than the others, with fine-tuning and"
        " without it",
        tuple(_build_lower_loss("rope+yarn", other, FAR) for other in _SCALINGS[:-1]),
    ),
)

_SPEED = (
    _state_speed("learned", "learned positions", "about 30 % fewer steps than learned positions"),
    _state_speed("t5", "T5's bias", "10 to 20 % fewer steps than T5's bias"),
)

CLAIMS = (*_SPEED, *_EXTRAPOLATION, *_WITHIN_LENGTH, *_OF_SCALINGS)
