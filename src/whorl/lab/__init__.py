"""The lab: train small models that differ only in their encoding, and compare them.

Its commands are ``whorl train``, ``compare``, ``generate`` and ``stream``. It needs
``pip install whorl[lab]``.
"""

from whorl._support.threads import use_threads

from .config import DataConfig, EvaluationConfig, ModelConfig, RunConfig, TrainingConfig
from .export import check_export, export, export_run
from .model import Model
from .rates import choose_learning_rates
from .runs import Run, collect_results
from .stream_runs import stream_run
from .trainer import Interrupted, TrainingProgress, train

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
    "choose_learning_rates",
    "collect_results",
    "export",
    "export_run",
    "stream_run",
    "train",
    "use_threads",
]
