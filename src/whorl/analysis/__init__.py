"""What an encoding does, in numbers.

>>> import torch, whorl
>>> q, k = torch.randn(1, 4, 6, 16), torch.randn(1, 4, 6, 16)
>>> parts = whorl.analysis.terms(whorl.RoPE(16) + whorl.ALiBi(4), q, k)
>>> list(parts)
['content-content', 'rope: interaction', 'alibi: position-position']
"""

from .aliasing import Aliasing, Return, aliasing
from .attended import Attended, AttendedHead, attended
from .biases import BiasCurves, Permutations, TermMaps, bias_curves, permutations, term_maps
from .decay import Bases, Decay, Scores, bases, decay, envelope
from .denominators import Denominator, Denominators, denominators
from .drift import Drift, cache_drift
from .entropy import Entropy, ScaleEntropy, attention_scale, entropy
from .explain import Explanation, Step, explain
from .extensions import Extension, Extensions, extensions
from .frequencies import Angles, Circle, FrequencyTable, angles, circle, frequencies
from .permutation import permutation
from .precision import Precision, precision
from .properties import Cost, Properties, ReportCard, properties
from .similarity import (
    PositionMap,
    ScoreMap,
    Similarity,
    inner_products,
    position_map,
    similarity,
)
from .terms import Terms, terms

__all__ = [
    "Aliasing",
    "Angles",
    "Attended",
    "AttendedHead",
    "Bases",
    "BiasCurves",
    "Circle",
    "Cost",
    "Decay",
    "Denominator",
    "Denominators",
    "Drift",
    "Entropy",
    "Explanation",
    "Extension",
    "Extensions",
    "FrequencyTable",
    "Permutations",
    "PositionMap",
    "Precision",
    "Properties",
    "ReportCard",
    "Return",
    "ScaleEntropy",
    "ScoreMap",
    "Scores",
    "Similarity",
    "Step",
    "TermMaps",
    "Terms",
    "aliasing",
    "angles",
    "attended",
    "attention_scale",
    "bases",
    "bias_curves",
    "cache_drift",
    "circle",
    "decay",
    "denominators",
    "entropy",
    "envelope",
    "explain",
    "extensions",
    "frequencies",
    "inner_products",
    "permutation",
    "permutations",
    "position_map",
    "precision",
    "properties",
    "similarity",
    "term_maps",
    "terms",
]
