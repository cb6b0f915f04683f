"""A comparison as ``whorl compare`` gives it, with numbers made up by formula.

The quick budget's nine rows resemble a real run; more rows stand for all encodings and scalings.
"""

import math
from typing import Any

from whorl.lab.compare.gather import FORMAT

LENGTHS = [64, 128, 256, 512, 1024, 2048]
# Loss at the trained length and what every doubling past it adds.
QUICK = {
    "nope": (2.21, 0.16),
    "sinusoidal": (2.22, 0.25),
    "learned": (2.28, 0.41),
    "rope": (1.89, 0.32),
    "rope+yarn": (1.91, 0.15),
    "alibi": (2.02, 0.015),
    "t5": (2.31, 0.085),
    "kerple": (2.04, 0.02),
    "xpos": (1.93, 0.11),
}
BASES = "relative_bias shaw transformer_xl deberta mrope alibi+rope learned+rope sinusoidal+t5"
SCALINGS = "linear dynamic_linear ntk dynamic_ntk ntk_by_parts dynamic_yarn llama3 longrope"


def comparison(
    rows: int = 9, *, seeds: int = 1, measure: str = "loss", settled: bool = True
) -> dict[str, Any]:
    """The first ``rows`` of the quick nine, further encodings, and scalings of rope and xpos.

    settled: whether a third of the steps gave the same results.
    """
    pairs: list[tuple[str, str | None]] = [(base, None) for base in BASES.split()]
    pairs += [(base, name) for base in ("rope", "xpos") for name in SCALINGS.split()]
    names = dict(QUICK)
    for n, (base, scaling) in enumerate(pairs):
        name = f"{base}+{scaling}" if scaling else base
        names[name] = (1.95 + 0.06 * (n % 7), 0.03 + 0.05 * (n % 6))
    chosen = list(names.items())[:rows]
    document: dict[str, Any] = {
        "format": FORMAT,
        "settings": settings(measure, seeds),
        "speed": {"rounds": 5, "steps": 3, "date": "2026-11-16"},
        "corpus": {
            "title": "Python 3.11.2 standard library",
            "files": 1200,
            "held_out_files": 120,
            "tokens": 18_000_000,
            "unit": "bytes",
        },
        "environment": {
            "cpu": "Some CPU",
            "cores": 2,
            "torch": "2.13.0+cpu",
            "whorl": "0.1.0",
            "python": "3.11.2",
            "date": "2026-11-16",
            "command": "whorl compare",
        },
        "rows": [
            {**row(name, *numbers, measure, seeds), "last_tenth": 0.003 if settled else 0.042}
            for name, numbers in chosen
        ],
        "claims": claims(),
        "unfinished": [{"name": "deberta", "reason": "the time of --minutes 8 was over"}],
        "notes": ["one seed: intervals are over evaluation windows only."] if seeds == 1 else [],
    }
    for n, one in enumerate(document["rows"]):
        means = {length: cell["mean"] for length, cell in one["by_length"].items()}
        # Else the third row was far ahead.
        ahead = 0.0 if settled or n != 2 else 1.0 if measure == "loss" else -1.0
        one["third"] = {length: mean - ahead for length, mean in means.items()}
    return document


def settings(measure: str, seeds: int) -> dict[str, Any]:
    return {
        "task": "text" if measure == "loss" else "passkey",
        "measure": measure,
        "length": 128,
        "lengths": LENGTHS,
        "steps": 350,
        "batch": 16,
        "seeds": list(range(seeds)),
        "layers": 3,
        "width": 96,
        "heads": 4,
        "windows": 64,
        "kind": "decoder",
        "attention": "softmax",
    }


def row(name: str, start: float, rise: float, measure: str, seeds: int) -> dict[str, Any]:
    base, _, scaling = name.partition("+")
    extends = bool(scaling) and base in ("rope", "xpos") and scaling != "rope"
    phase = sum(map(ord, name))

    def loss(position: float) -> float:
        doublings = math.log2(position / 128)
        return start + (rise * doublings if doublings > 0 else -0.1 * doublings)

    by_length = {}
    for length in LENGTHS:
        mean = loss(length) if measure == "loss" else math.exp(-2 * (loss(length) - 1.85))
        half = 0.02 + 0.05 * rise * max(0.0, math.log2(length / 128))
        by_seed = [mean + half * math.cos(seed + phase) for seed in range(seeds)]
        by_length[str(length)] = {
            "mean": mean,
            "low": mean - half,
            "high": mean + half,
            "seeds": by_seed,
        }
    positions = list(range(8, 2048, 16))
    noise = [0.12 * math.sin(phase + 1.7 * n) + 0.08 * math.cos(2.9 * n) for n in range(128)]
    steps = list(range(7, 351, 7))
    found: dict[str, Any] = {
        "name": name,
        "encoding": base if extends else name,
        "scaling": scaling if extends else None,
        "trained_as": base if extends else name,
        "learning_rate": 0.004,
        "parameters": 381_600,
        "encoding_parameters": 196_608 if name == "learned" else 128 if name == "t5" else 0,
        "seconds": None if extends else 40 + phase % 25,
        "tokens_per_second": None if extends else 17_500 - 300 * (phase % 25),
        "memory_mb": None if extends else 200 + 4.5 * (phase % 25),
        "by_length": by_length,
        "by_position": {
            "position": positions,
            "start": [round(p - 8) for p in positions],
            "end": [round(p + 8) for p in positions],
            "loss": [
                loss(p) + 0.9 * math.exp(-p / 12) + n for p, n in zip(positions, noise, strict=True)
            ],
        },
    }
    if not extends:
        pace = 35 + phase % 30
        losses = [start + (5.5 - start) * math.exp(-step / pace) for step in steps]
        found["curve"] = {"step": steps, "loss": losses}
    return found


def claims() -> list[dict[str, str]]:
    return [
        {
            "id": "learned-breaks",
            "kind": "learned",
            "claim": "Learned positions break past the trained length",
            "published": "Press et al. 2021, Figure 1: perplexity explodes past the trained length",
            "url": "https://arxiv.org/abs/2108.12409",
            "outcome": "reproduced",
            "evidence": "loss at 512 minus loss at 128: 0.82 [0.78, 0.86]",
        },
        {
            "id": "yarn-carries",
            "kind": "learned",
            "claim": "YaRN carries RoPE to 4 times the trained length",
            "published": "Peng et al. 2023, Table 1: 3.35 at 8192 for a model trained at 4096",
            "url": "https://arxiv.org/abs/2309.00071",
            "outcome": "not reproduced",
            "evidence": "loss at 512 minus loss at 128: 0.30 [0.26, 0.34]",
        },
        {
            "id": "rope-faster",
            "kind": "speed",
            "claim": "RoPE needs fewer steps than learned positions",
            "published": "Biderman et al. 2021: about 30 % fewer steps",
            "url": "https://blog.eleuther.ai/rotary-embeddings/",
            "outcome": "not decidable",
            "evidence": "to a validation loss of 2.28: rope 210 steps, learned 350; one seed",
        },
        {
            "id": "t5-holds",
            "kind": "learned",
            "claim": "T5's bias rises much less than RoPE past the trained length",
            "published": "Press et al. 2021, Figure 1",
            "url": "https://arxiv.org/abs/2108.12409",
            "outcome": "not yet",
            "evidence": "the last tenth of the steps still improved t5 by 1.2 %",
        },
    ]
