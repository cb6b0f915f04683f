"""Make the context of a model longer by training: ``whorl finetune``.

    settings         the method of extension, the training, and what is trained
    text             the text of the training
    positions        positions of long texts for short sequences: PoSE, random positions
    models           the interface of a model to fine-tune
    folder_model     a folder of transformers
    run_model        a run of whorl train
    lora             LoRA, with embeddings and norms
    steps            a step: gradients, clipping, AdamW
    training_folder  the files of a training under way
    training         ``finetune_model``, which puts these together

A folder of transformers needs the ``hf`` extra, LoRA the ``finetune`` extra. Nothing is downloaded.
"""

from .settings import FineTuning
from .training import FineTuningProgress, finetune_model

__all__ = ["FineTuning", "FineTuningProgress", "finetune_model"]
