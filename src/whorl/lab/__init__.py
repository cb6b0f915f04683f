"""The lab: train small models that differ in their encoding alone, and compare them.

``whorl train`` and ``whorl compare`` are its commands; needs the ``lab`` extra.
"""

from .config import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from .export import check_export, export, export_run
from .model import Model
from .rates import choose_learning_rate
from .runs import Run, collect_results
from .trainer import Interrupted, TrainingProgress, train, use_threads

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "Interrupted",
    "Model",
    "ModelConfig",
    "Run",
    "RunConfig",
    "TrainingConfig",
    "TrainingProgress",
    "check_export",
    "choose_learning_rate",
    "collect_results",
    "export",
    "export_run",
    "train",
    "use_threads",
]
