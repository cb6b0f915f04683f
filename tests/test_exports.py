"""Freeze what users import: a change here is a change of the public surface."""

import whorl

ENCODINGS = {"NoPE", "Sinusoidal", "Learned", "RelativeBias", "Shaw", "TransformerXL", "T5Bias"}
ENCODINGS |= {"DeBERTa", "ALiBi", "Kerple", "RoPE", "XPos", "AxialRoPE", "MRoPE"}
SCALINGS = {"Linear", "DynamicLinear", "NTK", "DynamicNTK", "NTKByParts", "YaRN", "DynamicYaRN"}
SCALINGS |= {"Llama3", "LongRoPE", "Proportional"}
INTERFACE = {"Card", "Composition", "Config", "Encoding", "Scaling", "Frequencies", "Ladder"}
INTERFACE |= {"Description", "PairDescription", "Impl", "Layout", "Precision"}
ATTENTION = {"MultiheadAttention", "attention", "score_mod", "shifted_attention"}
ATTENTION |= {"KVCache", "LinearState", "linear_attention"}
FUNCTIONS = {"from_dict", "make", "names", "read_config", "register", "__version__"}
FUNCTIONS |= {"check", "identify"}
MODULES = {"analysis", "positions", "testing"}
EXPORTS = ENCODINGS | SCALINGS | INTERFACE | ATTENTION | FUNCTIONS | MODULES
ANALYSIS = {"Alias", "Aliasing", "Angles", "Attended", "AttendedHead", "Bases", "BiasCurves"}
ANALYSIS |= {"Circle", "Cost", "Decay", "Denominator", "Denominators", "Drift", "Entropy"}
ANALYSIS |= {"Explanation", "Extension", "Extensions", "FrequencyTable", "Permutations"}
ANALYSIS |= {"PositionMap", "Precision", "Properties", "ReportCard", "ScaleEntropy", "ScoreMap"}
ANALYSIS |= {"Scores", "Similarity", "Step", "TermMaps", "Terms", "aliasing", "angles", "attended"}
ANALYSIS |= {"attention_scale", "bases", "bias_curves", "cache_drift", "circle", "decay"}
ANALYSIS |= {"denominators", "entropy", "envelope", "explain", "extensions", "frequencies"}
ANALYSIS |= {"inner_products", "permutation", "permutations", "position_map", "precision"}
ANALYSIS |= {"properties", "similarity", "term_maps", "terms"}
REGISTERED = "nope sinusoidal learned relative_bias shaw transformer_xl t5 deberta alibi kerple"
REGISTERED += " rope xpos axial_rope mrope"


def test_exports_are_frozen_and_exist() -> None:
    assert set(whorl.__all__) == EXPORTS
    assert len(whorl.__all__) == len(EXPORTS)
    assert [name for name in whorl.__all__ if not hasattr(whorl, name)] == []


def test_analysis_is_frozen_and_exists() -> None:
    assert set(whorl.analysis.__all__) == ANALYSIS
    assert all(hasattr(whorl.analysis, name) for name in ANALYSIS)


def test_names_of_the_registry_are_frozen() -> None:
    assert whorl.names() == sorted(REGISTERED.split())
