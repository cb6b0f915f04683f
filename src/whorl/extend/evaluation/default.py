"""The model that ``whorl extend`` uses if none is given: small, and trained once.

A decoder of bytes with RoPE, trained on the source code of Python's standard library, into whose
batches rows of passkeys are mixed, because a model that cannot find a number in a text of its own
length says nothing about longer ones. It is a run of the lab: it can be interrupted, and a second
call with the same settings finds it finished. LOG.md has other mixtures, with copying and several
keys, which take much longer to learn.
"""

from collections.abc import Callable
from pathlib import Path

from whorl.lab import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    Run,
    RunConfig,
    TrainingConfig,
    TrainingProgress,
    TrainingStage,
    train,
)
from whorl.lab.corpus import load_corpus

__all__ = ["DEFAULT_MODEL", "read_held_out_text", "train_default_model"]

#: Settings of its training.
DEFAULT_MODEL = RunConfig(
    model=ModelConfig(layers=2, width=64, heads=4),
    data=DataConfig(mixed=("retrieval",), mixed_share=0.8),
    training=TrainingConfig(
        stages=(
            TrainingStage(length=160, batch=10, steps=1000),
            TrainingStage(length=256, batch=8, steps=500),
        ),
        warmup=20,
    ),
    evaluation=EvaluationConfig(multiples=(1.0,), windows=16),
)
_LEAST_BYTES = 400_000


def train_default_model(
    folder: str | Path,
    *,
    progress: Callable[[TrainingProgress], None] | None = None,
    force: bool = False,
    command: str = "",
) -> Run:
    """Train the model in ``folder``, or go on; at once if it is there.

    Raises:
        whorl.lab.Interrupted: after SIGINT or SIGTERM, when the checkpoint is saved.
    """
    return train(DEFAULT_MODEL, folder, progress=progress, force=force, command=command)


def read_held_out_text() -> str:
    """Text that the model was not trained on: the longest held-out files of its corpus."""
    found = b""
    for text in load_corpus().held_out:
        if len(found) > _LEAST_BYTES:
            break
        found += bytes(text.tolist())
    return found.decode("utf-8", "replace")
