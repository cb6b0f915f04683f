"""A causal language model with its tokenizer, for evaluation in float32.

A folder in Hugging Face format needs config.json, *.safetensors and tokenizer files. A GGUF file
holds all three. A run of ``whorl train`` is exported to a temporary folder first, so it must be a
decoder with RoPE. A model with at most 260 tokens and no tokenizer reads bytes.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whorl._support.extras import import_extra
from whorl._support.memory import read_available
from whorl._support.words import quote
from whorl.configs.names import get_model_name, resolve_model
from whorl.lab import export_run
from whorl.lab.runs import Run

from .grouped import share_key_heads

__all__ = ["LoadedModel", "disable_messages", "load_model"]

_MOST_BYTE_TOKENS = 260
_DIGEST_BYTES = 2**20  # of each file of weights; the names and sizes count too


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model to evaluate.

    config: what ``whorl.extend.plan_extension`` takes. digest: changes if the weights do.
    tokenizer: None for bytes.
    """

    name: str
    model: nn.Module
    tokenizer: Any
    config: Any
    digest: str

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without tokens that mark its start or end."""
        if self.tokenizer is None:
            return list(text.encode())
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    @property
    def first_tokens(self) -> list[int]:
        """The token that starts every text, if the tokenizer adds one."""
        if self.tokenizer is None or self.tokenizer.bos_token_id is None:
            return []
        marked = self.tokenizer("a", verbose=False)["input_ids"]
        start = self.tokenizer.bos_token_id
        return [start] if marked[:1] == [start] else []


def load_model(path: str | Path) -> LoadedModel:
    """The model at ``path``: a folder in Hugging Face format, a GGUF file, or the folder of a run.

    path: also the name of a repository in the local cache of Hugging Face.

    Raises:
        ValueError: there is no such model, or no tokenizer for it.
    """
    import_extra("transformers", by="whorl.extend.evaluation", extra="hf")
    path = resolve_model(path, "model")
    if path.is_file() and path.suffix == ".gguf":
        import_extra("gguf", by="reading a GGUF file", extra="hf")
        return _load_files(path.parent, path.name, [path], {"gguf_file": path.name})
    if not path.is_dir():
        raise ValueError(
            f"model must be a folder with config.json and weights, a GGUF file, or the folder of a"
            f" run; {str(path)!r} {'is another file' if path.exists() else 'does not exist'}."
        )
    if (path / "config.toml").is_file():
        with tempfile.TemporaryDirectory() as temporary:
            exported = export_run(Run(path), Path(temporary) / "model")
            loaded = _load_folder(exported, path.name)
        config: Any = loaded.model.config
        return replace(loaded, config=config.to_dict())  # its folder is gone
    return _load_folder(path, get_model_name(path))


def _load_folder(folder: Path, name: str) -> LoadedModel:
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{str(folder)!r} must have a config.json, as a folder in Hugging Face format has; it"
            " has none."
        )
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        others = [*folder.glob("*.bin"), *folder.glob("*.pth"), *folder.glob("*.pt")]
        why = f"it has {quote(others[0].name)}, a pickle, which is not read" if others else "none"
        raise ValueError(
            f"{str(folder)!r} must have weights in *.safetensors files; found: {why}. Convert them,"
            " or download the safetensors files of the model."
        )
    return _load_files(folder, name, weights, {})


def _load_files(
    folder: Path, name: str, weights: list[Path], options: dict[str, Any]
) -> LoadedModel:
    import transformers

    _check_size(weights)
    common = {"local_files_only": True, **options}
    with disable_messages(transformers):
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32,
                output_loading_info=True,
                **({} if options else {"use_safetensors": True}),
                **common,
            )
        except Exception as error:
            raise ValueError(
                f"the model in {str(folder / name if options else folder)!r} cannot be loaded:"
                f" {_shorten_error(error)}"
            ) from None
        _check_weights(model, info, folder / name if options else folder)
        share_key_heads(model)
        tokenizer = _load_tokenizer(transformers, folder, common, model.config)
    config: Any = model.config.to_dict() if options else folder
    return LoadedModel(name, model.eval(), tokenizer, config, _compute_digest(weights))


def _check_size(weights: list[Path]) -> None:
    """Raise ValueError if the files of weights are larger than the memory that is free."""
    size, free = sum(path.stat().st_size for path in weights), read_available()
    if free is not None and size > free:
        raise ValueError(
            f"the weights in {str(weights[0].parent)!r} have {size / 2**20:,.0f} MB, and"
            f" {free / 2**20:,.0f} MB of memory are free; free some, or choose a smaller model."
        )


def _check_weights(model: Any, info: Any, path: Path) -> None:
    """Raise ValueError if tensors are missing, which would be random, or are not finite."""
    missing = sorted(info["missing_keys"])
    if missing:
        raise ValueError(
            f"the weights in {str(path)!r} must have every tensor of the model; {len(missing)} are"
            f" missing, such as {quote(missing[0])}. Copy the model again."
        )
    for name, weight in model.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise ValueError(
                f"the weights in {str(path)!r} must be finite numbers; {quote(name)} has others."
                " Copy the model again."
            )


def _load_tokenizer(
    transformers: Any, folder: Path, options: dict[str, Any], config: Any
) -> Any | None:
    """The tokenizer; None for a model of bytes."""
    vocab = config.get_text_config(decoder=True).vocab_size
    has_files = options.get("gguf_file") or any(folder.glob("tokenizer*"))
    if not has_files and vocab <= _MOST_BYTE_TOKENS:
        return None
    try:
        if not has_files:
            raise FileNotFoundError("it has no files")
        return transformers.AutoTokenizer.from_pretrained(folder, **options)
    except Exception as error:
        raise ValueError(
            f"the tokenizer in {str(folder)!r} cannot be loaded: {_shorten_error(error)} A model of"
            f" {vocab:,} tokens needs tokenizer.json or the files of its tokenizer."
        ) from None


def _shorten_error(error: Exception) -> str:
    first = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    return first if first.endswith(".") else f"{first}."


def _compute_digest(weights: list[Path]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for path in weights:
        found.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            found.update(file.read(_DIGEST_BYTES))
    return found.hexdigest()


@contextlib.contextmanager
def disable_messages(transformers: Any) -> Iterator[None]:
    """Keep progress bars and warnings of transformers off the terminal in a with block."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
