"""Numbers about encodings; ``whorl.plots`` draws them.

    properties     the report card of an encoding (``_measures`` measures it)
    explain        an encoding step by step, on small numbers
    explain_scaling  a scaling step by step
    frequencies    inverse frequencies, wavelengths, angles, paths on the circle
    decay          envelope, Abel's bound, scores by distance, effect of the base, biases
    aliasing       far distances that look near again
    precision      errors of tables, by position and dtype
    extensions     what every scaling does to each pair
    entropy        how widely attention spreads, and the effect of attention scales
    similarity     similarity of positions, scores by position, positions in the plane
    terms          a score as the sum of its terms, also as maps
    permutation    whether outputs depend on the order of tokens
    attended       attention weights by distance, for the heads of a trained model
    recoverability whether a position can be read from a rotated vector with noise
    gradients      gradients of each pair, by distance
    denominators   why linear attention does not rotate its denominator
    drift          the error of a deep model if frequencies change while it decodes
    record, scores, sizes   shared parts, which lab, plots and cli use too

>>> import torch, whorl
>>> q, k = torch.randn(1, 4, 6, 16), torch.randn(1, 4, 6, 16)
>>> parts = whorl.analysis.terms(whorl.RoPE(16) + whorl.ALiBi(4), q, k)
>>> list(parts)
['content-content', 'rope: interaction', 'alibi: position-position']
"""

from .aliasing import Aliasing, SimilarityPeak, aliasing
from .attended import Attended, AttendedHead, attended
from .decay import Bases, BiasCurves, ScoreCurves, ScoreDecay, bases, bias_curves, decay, envelope
from .denominators import Denominator, Denominators, denominators
from .drift import Drift, cache_drift
from .entropy import Entropy, ScaleEntropy, attention_scale, entropy
from .explain import Explanation, ExplanationStep, explain
from .explain_scaling import explain_scaling
from .extensions import Extensions, ScalingExtension, extensions
from .frequencies import Circle, FrequencyTable, PairAngles, angles, circle, frequencies
from .gradients import PairGradients, pair_gradients
from .permutation import Permutations, permutation, permutations
from .precision import TablePrecision, precision
from .properties import Cost, Properties, ReportCard, properties
from .recoverability import PositionRecovery, Recoverability, recoverability
from .similarity import (
    PositionMap,
    ScoreMap,
    Similarity,
    inner_products,
    position_map,
    similarity,
)
from .terms import TermMaps, Terms, term_maps, terms

__all__ = [
    "Aliasing",
    "Attended",
    "AttendedHead",
    "Bases",
    "BiasCurves",
    "Circle",
    "Cost",
    "Denominator",
    "Denominators",
    "Drift",
    "Entropy",
    "Explanation",
    "ExplanationStep",
    "Extensions",
    "FrequencyTable",
    "PairAngles",
    "PairGradients",
    "Permutations",
    "PositionMap",
    "PositionRecovery",
    "Properties",
    "Recoverability",
    "ReportCard",
    "ScaleEntropy",
    "ScalingExtension",
    "ScoreCurves",
    "ScoreDecay",
    "ScoreMap",
    "Similarity",
    "SimilarityPeak",
    "TablePrecision",
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
    "explain_scaling",
    "extensions",
    "frequencies",
    "inner_products",
    "pair_gradients",
    "permutation",
    "permutations",
    "position_map",
    "precision",
    "properties",
    "recoverability",
    "similarity",
    "term_maps",
    "terms",
]
