"""Methods of extension tried on the weights of a model: loss by length and by position, retrieval.

    loading      a model and its tokenizer, from a folder, a GGUF file or a run of whorl train
    default      a small model that is trained once, for those who have none at hand
    rotations    other frequencies for the rotary modules of a loaded model
    losses       losses of long texts, in chunks, and of a sliding window; reserved: their cache,
                 grouped: attention without copies of keys
    retrieval    statements hidden in long texts, asked for at the end
    settings     what is evaluated: methods, lengths, windows of text, retrieval
    cells        the measurements one by one, in their order
    resources    memory that they need
    results      the file of results, which a second call continues
    evaluate     ``evaluate_methods``, which puts these together
    document     the result as plain values; ranking, effective: who is better, and up to where
    report       verdict and tables; page: the same with charts, as HTML

It needs transformers, which the ``hf`` extra installs. Weights are read from safetensors and GGUF
files only, and nothing is downloaded.
"""

from .default import DEFAULT_MODEL, read_held_out_text, train_default_model
from .evaluate import EvaluationProgress, evaluate_methods
from .loading import LoadedModel, load_model
from .page import render_page
from .report import render_markdown, write_verdict
from .settings import ExtensionTest

__all__ = [
    "DEFAULT_MODEL",
    "EvaluationProgress",
    "ExtensionTest",
    "LoadedModel",
    "evaluate_methods",
    "load_model",
    "read_held_out_text",
    "render_markdown",
    "render_page",
    "train_default_model",
    "write_verdict",
]
