"""A run of ``whorl train`` to fine-tune: its model with the extension, and the run that results.

The result is the folder of a run, whose config has the extended encoding and the target as its
trained length. It starts from the weights of the original run, as with ``whorl train --from``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from whorl._support.files import write_file_atomically
from whorl._support.words import quote
from whorl.extend.evaluation import load_model
from whorl.extend.evaluation.settings import choose_lengths
from whorl.lab import (
    DataConfig,
    EvaluationConfig,
    Model,
    RunConfig,
    StartWeights,
    TrainingConfig,
    build_model,
    read_start,
)
from whorl.lab.checkpoint import CheckpointInfo
from whorl.lab.corpus import load_corpus
from whorl.lab.encodings import build_encoding, format_title, split_spec
from whorl.lab.integrity import compute_checksum
from whorl.lab.model import TransformerLayer
from whorl.lab.runs import Run
from whorl.lab.start import match_weights

from .models import TunedModel, WrittenTraining, plan_target
from .settings import FineTuning
from .text import TrainingText

__all__ = ["RunModel", "open_run"]


def open_run(path: Path, texts: Sequence[str | Path], settings: FineTuning) -> "RunModel":
    """The model of a run, with the extension of ``settings``.

    texts: files and folders; without any, the text that the run was trained on.
    """
    start = read_start(path)
    _check_run(start)
    loaded = load_model(path)
    plan = plan_target(loaded.config, settings)
    scaling = None
    if not settings.drop_positions:
        method = plan.find_method(plan.chosen)
        assert method is not None
        scaling = None if method.scaling is None else method.scaling.to_dict()
    spec = _extend_encoding(start.config, scaling, loaded.config["rope_parameters"]["rope_theta"])
    if settings.drop_positions:
        spec = {"name": "nope"}
    data = start.config.data
    if texts:
        data = DataConfig(files=tuple(map(str, texts)), tokenizer=data.tokenizer)
    elif data.task != "text":
        raise ValueError(
            f"texts must name files to train on, because {str(path)!r} was trained on the task"
            f" {quote(data.task)}; got none."
        )
    lengths = plan.trained.tokens, plan.target
    config = _build_config(start, spec, data, settings, *lengths)
    return RunModel(start, config, scaling, *lengths)


class RunModel(TunedModel):
    """The lab's model of ``config`` with the weights of ``start``."""

    kind, default_learning_rate = "run", 1e-3

    def __init__(
        self,
        start: StartWeights,
        config: RunConfig,
        scaling: Mapping[str, Any] | None,
        trained: int,
        target: int,
    ) -> None:
        model = build_model(config.model, vocab=start.model.vocab, longest=config.longest)
        assert isinstance(model, Model)
        self.start, self.config = start, start.record(config)
        match = match_weights(start, model, self.config)
        match.copy()
        self.report = match.report
        super().__init__(Path(start.folder).resolve().name, model, trained, target)
        self.scaling, self.digest = scaling, start.checksum
        corpus = load_corpus(config.data.files, config.data.tokenizer)
        self.about = corpus.about
        self.text = TrainingText(corpus.train, corpus.validation, (), corpus.about["sha256"])

    @property
    def model(self) -> Model:
        """The module, as the lab's model."""
        assert isinstance(self.module, Model)
        return self.module

    def compute_logits(self, tokens: Tensor, positions: Tensor | None) -> Tensor:
        logits: Tensor = self.model(tokens, positions=positions)
        return logits

    def name_part(self, name: str) -> str:
        return self.model.name_part(name)

    def use_attention(self, group: int | None) -> None:
        for block in self.model.blocks:
            assert isinstance(block, TransformerLayer)
            block.attention_group = group

    def write(self, folder: Path, training: WrittenTraining) -> None:
        run = Run(folder)
        run.prepare(self.config, self.about, command=training.command, start=self.report)
        config = compute_checksum(run.config_path.read_text(encoding="utf-8"))
        write_file_atomically(run.metrics_path, training.metrics)
        info = CheckpointInfo(training.step, training.seconds, training.checksum, config)
        info.save(run.checkpoint_path, self.model, _NoState())
        run.verify()


class _NoState:
    """The optimizer of a finished training, which nobody continues."""

    def get_state(self, weight: Tensor) -> dict[str, Tensor]:
        return {}

    def load_state(self, weight: Tensor, state: Mapping[str, Tensor]) -> None:
        raise AssertionError("a finished training is not continued")


def _check_run(start: StartWeights) -> None:
    """Refuse runs whose context cannot be extended."""
    encoding = start.config.model.encoding
    parts = build_encoding(encoding, start.config.model, longest=2).parts
    if not any(part.name == "rope" for part in parts):
        raise ValueError(
            f"the model must have rotary positions; the run {quote(start.folder)} has the encoding"
            f" {quote(format_title(encoding))}, whose context a scaling does not extend."
        )


def _extend_encoding(
    config: RunConfig, scaling: Mapping[str, Any] | None, base: float
) -> dict[str, Any]:
    """The encoding with another scaling; the base includes what an NTK scaling did to it."""
    (part,) = split_spec(config.model.encoding)
    if "scaling" in part:
        part = {key: one for key, one in part.items() if key != "scaling"} | {"base": base}
    if scaling is None:
        return part
    return {**part, "scaling": {key: one for key, one in scaling.items() if one is not None}}


def _build_config(
    start: StartWeights,
    spec: dict[str, Any],
    data: DataConfig,
    settings: FineTuning,
    trained: int,
    target: int,
) -> RunConfig:
    """The config of the resulting run, evaluated at the trained length, the target and between."""
    rate = settings.learning_rate or RunModel.default_learning_rate
    training = TrainingConfig(
        length=target,
        batch=settings.batch * settings.accumulation,
        steps=settings.steps,
        optimizer="adamw",
        learning_rate=rate,
        encoding_learning_rate=rate,
        embedding_learning_rate=rate,
        warmup=settings.warmup_steps,
        clip=settings.clip,
        precision=settings.precision,
        seed=settings.seed,
    )
    multiples = tuple(length / target for length in choose_lengths(trained, target) if length > 1)
    windows = start.config.evaluation.windows
    return RunConfig(
        model=replace(start.config.model, encoding=spec),
        data=data,
        training=training,
        evaluation=EvaluationConfig(multiples=multiples, windows=windows),
    )
