"""The lab: train small models that differ only in their encoding, and compare them.

Its commands are ``whorl train``, ``compare``, ``generate`` and ``stream``. It needs
``pip install whorl[lab]``.
"""

from whorl._support.threads import use_threads

from .architectures import build_model
from .config import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    RunConfig,
    StartConfig,
    TrainingConfig,
    TrainingStage,
)
from .export import check_export, export, export_run
from .model import Model
from .rates import choose_learning_rates
from .roformer import RoFormer, RoFormerClassifier, RoFormerConfig, RoFormerMaskedLM
from .roformer_weights import LoadedRoFormer, load_roformer, save_roformer
from .runs import Run, collect_results
from .start import StartWeights, describe_start, read_start
from .stream_runs import stream_run
from .trainer import Interrupted, TrainingProgress, train

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "Interrupted",
    "LoadedRoFormer",
    "Model",
    "ModelConfig",
    "RoFormer",
    "RoFormerClassifier",
    "RoFormerConfig",
    "RoFormerMaskedLM",
    "Run",
    "RunConfig",
    "StartConfig",
    "StartWeights",
    "TrainingConfig",
    "TrainingProgress",
    "TrainingStage",
    "build_model",
    "check_export",
    "choose_learning_rates",
    "collect_results",
    "describe_start",
    "export",
    "export_run",
    "load_roformer",
    "read_start",
    "save_roformer",
    "stream_run",
    "train",
    "use_threads",
]
