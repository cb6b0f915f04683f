"""The lab: train small models that differ in their encoding alone, and compare them.

``whorl train`` and ``whorl compare`` are its commands; needs the ``lab`` extra.
"""

from .config import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from .export import check_export, export, export_run
from .model import Model
from .rates import learning_rate
from .runs import Run, results
from .trainer import Interrupted, Moment, threads, train

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "Interrupted",
    "Model",
    "ModelConfig",
    "Moment",
    "Run",
    "RunConfig",
    "TrainingConfig",
    "check_export",
    "export",
    "export_run",
    "learning_rate",
    "results",
    "threads",
    "train",
]
