"""Methods of extension tried on the weights of a model: loss by length and by position, retrieval.

    loading      a model and its tokenizer, from a folder, a GGUF file or a run of whorl train
    rotations    other frequencies for the rotary modules of a loaded model
    losses       losses of long texts, in chunks, and those of a sliding window
    passkeys     a number hidden in filler, asked for at the end
    settings     what is evaluated: methods, lengths, windows of text
    results      the file of results, which a second call continues
    evaluate     ``evaluate_methods``, which puts these together
    report       verdict and tables

It needs transformers, which the ``hf`` extra installs. Weights are read from safetensors and GGUF
files only, and nothing is downloaded.
"""

from .evaluate import EvaluationProgress, evaluate_methods
from .loading import LoadedModel, load_model
from .report import render_markdown, write_verdict
from .settings import ExtensionTest

__all__ = [
    "EvaluationProgress",
    "ExtensionTest",
    "LoadedModel",
    "evaluate_methods",
    "load_model",
    "render_markdown",
    "write_verdict",
]
