"""Published claims, and whether a comparison reproduces them.

A claim is about a number that should be above a bound, such as the loss at 4 times the training
length minus the loss at the training length. It is reproduced if the whole 95 % interval is above
the bound, not reproduced if it is below, else inconclusive. A claim that an encoding rises less
than RoPE is inconclusive unless RoPE rises. With several seeds, differences are paired by seed;
with one seed, by window of text, and the interval does not contain the variation between seeds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from whorl.lab.config import RunConfig

from .gather import EncodingResults
from .statistics import Estimate, estimate
from .thresholds import HOLDS, SEED_NOISE

__all__ = ["CLAIMS", "Claim", "check_claims"]

_DEGRADES = HOLDS["loss"]
_FAR = 4  # times the training length
_INCONCLUSIVE = "inconclusive"
# A model counts as trained if its loss is this many nats below that of token frequencies.
_LEAST_GAIN = 0.5

#: Function of an encoding and a multiple of the training length: the loss of one seed or window.
LossFunction = Callable[[str, int], float]


@dataclass(frozen=True)
class Claim:
    """A published claim; it holds if value(loss) is above ``bound``.

    published: who reported it. needs: the encodings that it compares. label: what the value is.
    """

    id: str
    claim: str
    published: str
    url: str
    needs: tuple[str, ...]
    value: Callable[[LossFunction], float]
    label: str
    bound: float = 0.0
    #: Whether the claim is inconclusive unless RoPE's loss rises.
    needs_rope_rise: bool = False
    #: Whether it compares two encodings at one length; one seed can reverse a small difference.
    between_encodings: bool = False


def _compute_rise(loss: LossFunction, name: str) -> float:
    return loss(name, _FAR) - loss(name, 1)


def _build_rise(name: str) -> Callable[[LossFunction], float]:
    return lambda loss: _compute_rise(loss, name)


def _build_spared_rise(name: str) -> Callable[[LossFunction], float]:
    return lambda loss: 0.5 * _compute_rise(loss, "rope") - _compute_rise(loss, name)


_PRESS = "https://arxiv.org/abs/2108.12409"
_YARN = "https://arxiv.org/abs/2309.00071"
_ELEUTHER = "https://blog.eleuther.ai/rotary-embeddings/"
_ELEUTHER_NUMBERS = (
    "Biderman et al. 2021: 125M parameters, OpenWebText2, 55k steps, validation loss 2.759 with"
    " rotary, 2.809 learned, 2.801 T5"
)

CLAIMS = (
    Claim(
        "learned-rises",
        "Learned positions do not extrapolate: the loss rises past the training length",
        "by construction: no row past the training length was ever trained",
        "",
        ("learned",),
        _build_rise("learned"),
        f"rise at {_FAR}x",
        _DEGRADES,
    ),
    Claim(
        "sinusoidal-rises",
        "Sinusoidal positions do not extrapolate: the loss rises past the training length",
        "Press et al. 2021, Figure 1: perplexity rises soon after the training length",
        _PRESS,
        ("sinusoidal",),
        _build_rise("sinusoidal"),
        f"rise at {_FAR}x",
        _DEGRADES,
    ),
    Claim(
        "rope-degrades",
        "RoPE degrades past the training length",
        "Peng et al. 2023, Table 6: perplexity of Mistral 7B 36.8 at 16k without an extension,"
        " 2.65 with YaRN",
        _YARN,
        ("rope",),
        _build_rise("rope"),
        f"rise at {_FAR}x",
        _DEGRADES,
    ),
    Claim(
        "alibi-holds",
        "ALiBi rises much less than RoPE past the training length",
        "Press et al. 2021, abstract: 1.3B parameters trained on 1024 tokens reach at 2048 the"
        " perplexity of a sinusoidal model trained on 2048",
        _PRESS,
        ("alibi", "rope"),
        _build_spared_rise("alibi"),
        f"half of RoPE's rise at {_FAR}x, less ALiBi's",
        needs_rope_rise=True,
    ),
    Claim(
        "kerple-holds",
        "Kerple rises much less than RoPE past the training length",
        "Chi et al. 2022: trained on 512 tokens, evaluated up to 16k, the logarithmic variant best",
        "https://arxiv.org/abs/2205.09921",
        ("kerple", "rope"),
        _build_spared_rise("kerple"),
        f"half of RoPE's rise at {_FAR}x, less Kerple's",
        needs_rope_rise=True,
    ),
    Claim(
        "t5-holds",
        "T5's bias rises much less than RoPE past the training length",
        "Press et al. 2021, Figure 1: T5's bias extrapolates further than rotary",
        _PRESS,
        ("t5", "rope"),
        _build_spared_rise("t5"),
        f"half of RoPE's rise at {_FAR}x, less T5's",
        needs_rope_rise=True,
    ),
    Claim(
        "yarn-carries",
        "YaRN carries RoPE to 4 times the training length: most of the rise is gone",
        "Peng et al. 2023, Table 6: perplexity of Mistral 7B at 16k 36.8 without, 2.65 with YaRN"
        " (fine-tuned for it; here as it is)",
        _YARN,
        ("rope", "rope+yarn"),
        lambda loss: (
            0.5 * _compute_rise(loss, "rope") - (loss("rope+yarn", _FAR) - loss("rope", 1))
        ),
        f"half of RoPE's rise at {_FAR}x, less what remains of it with YaRN",
        needs_rope_rise=True,
    ),
    Claim(
        "rope-beats-learned",
        "RoPE learns faster than learned positions within the training length",
        _ELEUTHER_NUMBERS + ", and about 30 % fewer steps than learned",
        _ELEUTHER,
        ("rope", "learned"),
        lambda loss: loss("learned", 1) - loss("rope", 1),
        "loss of learned at 1x, less RoPE's",
        between_encodings=True,
    ),
    Claim(
        "rope-beats-t5",
        "RoPE learns faster than T5's bias within the training length",
        _ELEUTHER_NUMBERS + ", and 10 to 20 % fewer steps than T5's",
        _ELEUTHER,
        ("rope", "t5"),
        lambda loss: loss("t5", 1) - loss("rope", 1),
        "loss of T5 at 1x, less RoPE's",
        between_encodings=True,
    ),
)


def check_claims(entries: Sequence[EncodingResults], config: RunConfig) -> list[dict[str, Any]]:
    """Every claim whose encodings and lengths the comparison has, with its outcome.

    All claims are about decoders with softmax attention; other models have none.
    """
    if config.model.kind != "decoder" or config.model.attention != "softmax":
        return []
    at = {1: config.training.length, _FAR: _FAR * config.training.length}
    if not set(at.values()) <= set(config.lengths):
        return []
    known = {entry.name: entry for entry in entries}
    return [
        _check_claim(claim, {name: known[name] for name in claim.needs}, at)
        for claim in CLAIMS
        if set(claim.needs) <= known.keys()
        and ("rope+yarn" not in claim.needs or config.evaluation.factor == _FAR)
    ]


def _check_claim(
    claim: Claim, entries: Mapping[str, EncodingResults], at: Mapping[int, int]
) -> dict[str, Any]:
    value, over = _estimate_value(claim.value, entries, at)
    shown, bound = claim.label, claim.bound
    noise = SEED_NOISE if claim.between_encodings and over.startswith("one seed") else 0.0
    outcome = _compare_with_bound(value, bound, noise)
    if claim.needs_rope_rise:
        rise, _ = _estimate_value(_build_rise("rope"), entries, at)
        if _compare_with_bound(rise, _DEGRADES) != "reproduced":
            outcome, shown, value, bound = (
                _INCONCLUSIVE,
                f"RoPE's own rise at {_FAR}x",
                rise,
                _DEGRADES,
            )
    losses = ", ".join(f"{name} {_format_losses(entry, at)}" for name, entry in entries.items())
    evidence = f"{losses}; {shown}: {value}, to be above {bound + noise:g} ({over})"
    if untrained := [name for name, entry in entries.items() if not _has_learned(entry, at[1])]:
        outcome = _INCONCLUSIVE
        evidence = f"{', '.join(untrained)}: the loss is hardly below that of token frequencies"
    return {
        "id": claim.id,
        "claim": claim.claim,
        "published": claim.published,
        "url": claim.url,
        "outcome": outcome,
        "evidence": evidence,
        "value": {"mean": value.mean, "low": value.low, "high": value.high},
    }


def _has_learned(entry: EncodingResults, length: int) -> bool:
    """Whether a model predicts better than token frequencies; else positions do not matter."""
    return all(
        loss < entry.evaluations[seed]["frequencies_loss"] - _LEAST_GAIN
        for seed, loss in entry.get_by_seed(length, "loss").items()
    )


def _format_losses(entry: EncodingResults, at: Mapping[int, int]) -> str:
    """Mean losses at the training length and at 4 times that length: "1.75 to 2.63"."""
    means = (fmean(entry.get_by_seed(length, "loss").values()) for length in at.values())
    return " to ".join(f"{mean:.2f}" for mean in means)


def _estimate_value(
    value: Callable[[LossFunction], float],
    entries: Mapping[str, EncodingResults],
    at: Mapping[int, int],
) -> tuple[Estimate, str]:
    """Estimate of a claim's value over seeds, or windows if there is one seed; and which."""
    seeds = sorted(set.intersection(*(set(entry.evaluations) for entry in entries.values())))
    if len(seeds) > 1:
        losses = {
            (name, times): entry.get_by_seed(length, "loss")
            for name, entry in entries.items()
            for times, length in at.items()
        }
        return estimate(_compute_each(value, losses, seeds)), f"{len(seeds)} seeds"
    if not seeds:
        return Estimate(float("nan")), "no seed in common"
    windows = {
        (name, times): dict(enumerate(_get_windows(entry, seeds[0], length)))
        for name, entry in entries.items()
        for times, length in at.items()
    }
    numbers = list(next(iter(windows.values())))
    return estimate(_compute_each(value, windows, numbers)), f"one seed, {len(numbers)} windows"


def _compute_each(
    value: Callable[[LossFunction], float],
    losses: Mapping[tuple[str, int], Mapping[int, float]],
    which: Sequence[int],
) -> list[float]:
    """The value of a claim in each seed, or in each window."""

    def at(n: int) -> LossFunction:
        return lambda name, times: losses[name, times][n]

    return [value(at(n)) for n in which]


def _get_windows(entry: EncodingResults, seed: int, length: int) -> list[float]:
    found = entry.evaluations[seed]["by_length"][str(length)]["windows"]
    return [math.nan if loss is None else loss for loss in found]


def _compare_with_bound(estimate: Estimate, bound: float, noise: float = 0.0) -> str:
    """The outcome of a claim; within ``noise`` of the bound it is inconclusive."""
    if estimate.low is None or estimate.high is None:
        return _INCONCLUSIVE
    if estimate.low > bound + noise:
        return "reproduced"
    return "not reproduced" if estimate.high < bound - noise else _INCONCLUSIVE
