"""Freeze what users import: a change here is a change of the public surface."""

import ast
import importlib
from pathlib import Path

import pytest

import whorl

from .fresh import run_fresh

ENCODINGS = {"NoPE", "Sinusoidal", "Learned", "RelativeBias", "Shaw", "TransformerXL", "T5Bias"}
ENCODINGS |= {"DeBERTa", "ALiBi", "Kerple", "RoPE", "XPos", "AxialRoPE", "MRoPE"}
SCALINGS = {"Linear", "DynamicLinear", "NTK", "DynamicNTK", "NTKByParts", "YaRN", "DynamicYaRN"}
SCALINGS |= {"Llama3", "LongRoPE", "Proportional"}
INTERFACE = {"Card", "Composition", "Config", "Encoding", "Scaling", "Frequencies", "Ladder"}
INTERFACE |= {"Description", "PairDescription", "Impl", "Layout", "Precision"}
ATTENTION = {"MultiheadAttention", "attention", "score_mod", "shifted_attention"}
ATTENTION |= {"PartialAttention", "merge_attention", "partial_attention"}
ATTENTION |= {"KVCache", "LinearState", "RandomFeatures", "linear_attention"}
FUNCTIONS = {"from_dict", "make", "names", "read_config", "register", "__version__"}
FUNCTIONS |= {"check", "identify"}
MODULES = {"analysis", "bench", "configs", "extend", "functions", "hf", "info", "lab", "plots"}
MODULES |= {"finetune", "parallel", "plan", "positions", "testing", "weights"}
EXPORTS = ENCODINGS | SCALINGS | INTERFACE | ATTENTION | FUNCTIONS | MODULES
ANALYSIS = {
    "Aliasing",
    "SimilarityPeak",
    "PairAngles",
    "Attended",
    "AttendedHead",
    "Bases",
    "BiasCurves",
}
ANALYSIS |= {"Circle", "Cost", "ScoreDecay", "Denominator", "Denominators", "Drift", "Entropy"}
ANALYSIS |= {"Explanation", "ScalingExtension", "Extensions", "FrequencyTable", "Permutations"}
ANALYSIS |= {
    "PositionMap",
    "TablePrecision",
    "Properties",
    "ReportCard",
    "ScaleEntropy",
    "ScoreMap",
}
ANALYSIS |= {
    "ScoreCurves",
    "Similarity",
    "ExplanationStep",
    "TermMaps",
    "Terms",
    "aliasing",
    "angles",
    "attended",
}
ANALYSIS |= {"attention_scale", "bases", "bias_curves", "cache_drift", "circle", "decay"}
ANALYSIS |= {"denominators", "entropy", "envelope", "explain", "extensions", "frequencies"}
ANALYSIS |= {"explain_scaling"}
ANALYSIS |= {"inner_products", "permutation", "permutations", "position_map", "precision"}
ANALYSIS |= {"properties", "similarity", "term_maps", "terms", "recoverability", "pair_gradients"}
ANALYSIS |= {"PairGradients", "PositionRecovery", "Recoverability"}
CHECKS = {"CheckReport", "Identification", "Measured", "Mistake", "check", "identify"}
WEIGHTS = {"Conversion", "Detection", "LayerFinding", "Pattern", "Stated", "Verdict"}
WEIGHTS |= {"convert", "detect", "parse_pattern"}
CONFIGS = {"ConfigError", "Document", "Kind", "LayerGroup", "ModelPositions", "Note", "Parity"}
CONFIGS |= {"Part", "QueryScale", "Rotation", "RopeParameters", "load", "parse", "read_config"}
CONFIGS |= {"rope_parameters"}
DIAGNOSIS = {"RULES", "SEVERITIES", "ConfigDiagnosis", "DiagnosisRule", "Finding", "Severity"}
DIAGNOSIS |= {"diagnose", "find_rule"}
INSPECTION = {"Alias", "CompletePairs", "FrameworkComparison", "GroupReport", "Inspection"}
INSPECTION |= {"LengthReport", "ModelExtension", "Remark", "inspect"}
INSPECTION |= {"ComparedFact", "ModelDifference", "compare_models"}
PLOTS = {"PALETTE", "SUFFIXES", "Theme", "accuracy", "bench", "catalogue", "check_path"}
PLOTS |= {"inspection", "lab", "lab_costs", "lab_lengths", "lab_positions", "lab_training"}
PLOTS |= {"extension", "extension_lengths", "extension_positions", "extension_retrieval"}
PLOTS |= {"save", "speed", "svg", "theme"}
PLOTS |= {"experiment", "experiment_differences", "experiment_lines", "list_experiment_lines"}
HF = {"Installation", "LiveDiagnosis", "LiveFinding", "Loading", "SinkCache", "UnrotatedCache"}
HF |= {"diagnose", "disable", "enable", "generate_recomputed", "install", "splice", "uninstall"}
EXTEND = {"AngleReport", "ExtensionPlan", "FrameworkSupport", "MethodReport", "Recipe"}
EXTEND |= {"TrainedLength", "WrittenExtension", "plan_extension", "write_extension"}
FINETUNE = {"FineTuning", "FineTuningProgress", "finetune_model"}
PACKAGES = {
    "analysis": ANALYSIS,
    "extend": EXTEND,
    "finetune": FINETUNE,
    "hf": HF,
    "functions": CHECKS,
    "weights": WEIGHTS,
}
PACKAGES |= {
    "configs": CONFIGS,
    "configs.diagnosis": DIAGNOSIS,
    "configs.inspection": INSPECTION,
    "plots": PLOTS,
}
REGISTERED = "nope sinusoidal learned relative_bias shaw transformer_xl t5 deberta alibi kerple"
REGISTERED += " rope xpos axial_rope mrope"


def test_exports_are_frozen_and_exist() -> None:
    assert set(whorl.__all__) == EXPORTS
    assert len(whorl.__all__) == len(EXPORTS)
    assert [name for name in whorl.__all__ if not hasattr(whorl, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_frozen_and_exist(package: str) -> None:
    module = importlib.import_module(f"whorl.{package}")
    assert set(module.__all__) == PACKAGES[package]
    assert len(module.__all__) == len(PACKAGES[package])
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_what_is_loaded_later_is_listed_and_stays() -> None:
    assert set(whorl.__all__) <= set(dir(whorl))
    assert whorl.check is whorl.functions.check
    assert whorl.identify is whorl.functions.identify
    assert whorl.read_config is whorl.configs.read_config
    with pytest.raises(AttributeError, match="module 'whorl' has no attribute 'chek'"):
        whorl.chek  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"module 'whorl\.configs' has no attribute 'doctor'"):
        whorl.configs.doctor  # type: ignore[attr-defined]  # noqa: B018


def test_every_name_is_what_type_checkers_see() -> None:
    text = Path(whorl.__file__).read_text(encoding="utf-8")
    (block,) = [node for node in ast.parse(text).body if ast.unparse(node).startswith("if TYPE_")]
    listed = set()
    for node in ast.walk(block):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(f"whorl.{node.module}")
            for alias in node.names:
                assert getattr(whorl, alias.name) is getattr(module, alias.name), alias.name
                listed.add(alias.name)
    assert listed == EXPORTS - MODULES - {"__version__"}


def test_attention_stays_the_function() -> None:
    """Whatever is imported first, and although a package has the same name."""
    code = "import whorl.attention.cache.kv_cache; assert callable(whorl.attention); whorl.KVCache"
    assert run_fresh(code).error is None
    assert importlib.import_module("whorl.attention").attention is whorl.attention


def test_names_of_the_registry_are_frozen() -> None:
    assert whorl.names() == sorted(REGISTERED.split())
