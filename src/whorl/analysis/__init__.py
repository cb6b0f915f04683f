"""What an encoding does, in numbers; ``whorl.plots`` draws them.

    properties     the report card of an encoding (``_measures`` measures it)
    explain        an encoding step by step, on small numbers
    frequencies    inverse frequencies, wavelengths, angles, paths on the circle
    decay          envelope, Abel's bound, scores by distance, effect of the base
    aliasing       far distances that look near again
    precision      errors of tables, by position and dtype; ``exact`` gives the truth
    extensions     what every scaling does to each pair
    entropy        how widely attention spreads, and what attention scales do
    similarity     how alike positions look; scores of places; positions in the plane
    biases         biases by distance, terms as maps, permutations, for charts
    terms          a score as the sum of its terms
    permutation    whether outputs notice shuffled tokens
    attended       how far the heads of a trained model look
    denominators   why linear attention does not rotate its denominator
    drift          what a deep model loses when frequencies change while it decodes
    record, scores, sizes   what all of these share, and lab, plots and cli take from here

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
