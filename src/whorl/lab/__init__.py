"""The lab: train small models that differ only in their encoding, and compare them.

Its commands are ``whorl train`` and ``whorl compare``. It needs ``pip install whorl[lab]``.
"""

from whorl._support.threads import use_threads

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
from .runs import Run, collect_results
from .start import StartWeights, describe_start, read_start
from .trainer import Interrupted, TrainingProgress, train

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "Interrupted",
    "Model",
    "ModelConfig",
    "Run",
    "RunConfig",
    "StartConfig",
    "StartWeights",
    "TrainingConfig",
    "TrainingProgress",
    "TrainingStage",
    "check_export",
    "choose_learning_rates",
    "collect_results",
    "describe_start",
    "export",
    "export_run",
    "read_start",
    "train",
    "use_threads",
]
