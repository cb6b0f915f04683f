"""Settings of a run, as frozen dataclasses and as TOML.

    [model]       shape, encoding, kind of attention
    [data]        text or a synthetic task
    [training]    lengths, steps, learning rate
    [evaluation]  multiples of the trained length
    [start]       trained weights to start from

Two runs with the same config, text and number of threads give the same numbers.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from whorl._support.extras import import_extra
from whorl._support.words import quote, suggest_name
from whorl.types import QueryKeyNorm

from ._checks import check_choice, check_count, check_number
from .toml_tables import convert_to_plain, read_table, read_toml

__all__ = [
    "DataConfig",
    "EvaluationConfig",
    "ModelConfig",
    "RunConfig",
    "StartConfig",
    "TrainingConfig",
    "TrainingStage",
]

ModelKind = Literal["decoder", "encoder"]
Architecture = Literal["llama", "roformer"]
AttentionKind = Literal["softmax", "linear"]
FeatureMapName = Literal["elu", "relu", "cosine", "favor"]
TrainingPrecision = Literal["float32", "bfloat16"]
OptimizerName = Literal["muon", "adamw"]
Sharing = Literal["model", "layer"]
Masking = Literal["tokens", "words"]
#: "rope", "learned+rope(base=500)", {"name": "rope", "base": 500.0}, or a list of these.
EncodingSpec = str | dict[str, Any] | list[Any]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape and encoding of the model that ``architectures.py`` builds.

    architecture: "llama", the model of ``model.py``, or "roformer", the encoder of ``roformer.py``.
    encoding_per: with "model" all layers share the trained parameters of the encoding, as in T5
    and Kerple; with "layer" each layer has its own. qk_norm: whether queries and keys of each head
    are normalized, before or after their rotation.
    """

    encoding: EncodingSpec = "rope"
    kind: ModelKind = "decoder"
    attention: AttentionKind = "softmax"
    feature_map: FeatureMapName = "elu"
    layers: int = 2
    width: int = 48
    heads: int = 4
    kv_heads: int | None = None
    hidden: int | None = None
    dropout: float = 0.0
    encoding_per: Sharing = "model"
    tied: bool = False
    architecture: Architecture = "llama"
    qk_norm: QueryKeyNorm = "none"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads"):
            check_count(f"model.{name}", getattr(self, name))
        for name in ("kv_heads", "hidden"):
            if getattr(self, name) is not None:
                check_count(f"model.{name}", getattr(self, name))
        check_choice("model.kind", self.kind, get_args(ModelKind))
        check_choice("model.architecture", self.architecture, get_args(Architecture))
        check_choice("model.attention", self.attention, get_args(AttentionKind))
        check_choice("model.feature_map", self.feature_map, get_args(FeatureMapName))
        check_choice("model.encoding_per", self.encoding_per, get_args(Sharing))
        check_choice("model.qk_norm", self.qk_norm, get_args(QueryKeyNorm))
        check_number("model.dropout", self.dropout, 0.0, 0.95)
        if not isinstance(self.tied, bool):
            raise TypeError(f"model.tied must be true or false; got {quote(self.tied)}.")
        if self.width % self.heads:
            raise ValueError(
                f"model.width must be a multiple of model.heads = {self.heads}, because all heads"
                f" have the same size; got {self.width}."
            )
        if self.heads % self.key_heads:
            raise ValueError(
                f"model.kv_heads must divide model.heads = {self.heads}, because each key"
                f" head serves equally many query heads; got {self.kv_heads}."
            )
        if self.attention == "linear" and self.dropout:
            raise ValueError("model.dropout must be 0 with linear attention, which has no weights.")
        if self.attention == "linear" and self.qk_norm == "after":
            raise ValueError(
                "model.qk_norm must be 'none' or 'before' with linear attention, which rotates"
                " features of queries and keys, not these themselves; got 'after'."
            )
        if self.architecture == "roformer":
            self._check_roformer()

    def _check_roformer(self) -> None:
        for name, only, came in (
            ("kind", "encoder", self.kind),
            ("attention", "softmax", self.attention),
            ("kv_heads", self.heads, self.key_heads),
            ("qk_norm", "none", self.qk_norm),
        ):
            if came != only:
                raise ValueError(
                    f"model.{name} must be {quote(only)} with architecture = 'roformer'; got"
                    f" {quote(came)}. Set it, or choose architecture = 'llama'."
                )

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def key_heads(self) -> int:
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def inner(self) -> int:
        """Width inside the MLP: ``hidden``, else 8/3 of the width rounded up to 16."""
        return self.hidden or -(-8 * self.width // 3 // 16) * 16


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where tokens come from: text, or a synthetic task of ``tasks.py``.

    files: files and folders of text; if there are none, the source code of Python's standard
    library. tokenizer: a tokenizer.json; without it every byte is a token. masking: whether an
    encoder predicts single tokens of text or whole words (``masking.py``).

    mixed: tasks whose rows are mixed into the text of a decoder, in turn, and "retrieval" for the
    texts of ``retrieval.py``. mixed_share: the share of a training batch that they have. Validation
    and evaluation have text only.
    """

    task: str = "text"
    files: tuple[str, ...] = ()
    tokenizer: str | None = None
    masking: Masking = "tokens"
    mixed: tuple[str, ...] = ()
    mixed_share: float = 0.5

    def __post_init__(self) -> None:
        from .tasks import TASK_NAMES

        check_choice("data.task", self.task, ("text", *TASK_NAMES))
        check_choice("data.masking", self.masking, get_args(Masking))
        if self.task != "text" and (self.files or self.tokenizer):
            raise ValueError(
                f"data: the task {quote(self.task)} makes its own tokens; leave out files and"
                " tokenizer."
            )
        if not all(isinstance(name, str) and name for name in self.files):
            raise TypeError(f"data.files must be paths; got {quote(list(self.files))}.")
        for name in self.mixed:
            check_choice("data.mixed", name, ("retrieval", *TASK_NAMES))
        check_number("data.mixed_share", self.mixed_share, 0.0, 1.0, open_below=True)
        if self.mixed and (self.task != "text" or self.tokenizer):
            raise ValueError(
                "data.mixed adds rows of bytes to text; leave out task and tokenizer, or mixed."
            )


@dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """A number of steps at one length and batch.

    learning_rate: that of the matrices in this stage, instead of ``training.learning_rate``; all
    other rates change by the same ratio.
    """

    length: int
    batch: int
    steps: int
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_count("training.stages: length", self.length, least=2)
        for name in ("batch", "steps"):
            check_count(f"training.stages: {name}", getattr(self, name))
        if self.learning_rate is not None:
            name = "training.stages: learning_rate"
            check_number(name, self.learning_rate, 0.0, 10.0, open_below=True)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length, batch and steps of a training, and its learning rates.

    optimizer: what trains the matrices of the layers, "muon" or "adamw"; AdamW trains the rest.
    learning_rate: that of these matrices. encoding_learning_rate: that of the parameters of the
    encoding. embedding_learning_rate: that of all others. After ``warmup`` steps the rates fall to
    zero in a line.

    stages: trainings of one model after another, at their own lengths. Then ``steps`` is their sum,
    ``length`` and ``batch`` are those of the last one, and none of the three may say otherwise. One
    warm-up and one line of learning rates extend over all of them.
    """

    length: int = 128
    batch: int = 16
    steps: int = 1800
    optimizer: OptimizerName = "muon"
    learning_rate: float = 1e-2
    encoding_learning_rate: float = 1e-2
    embedding_learning_rate: float = 8e-3
    warmup: int = 18
    weight_decay: float = 0.0
    clip: float = 1.0
    precision: TrainingPrecision = "float32"
    seed: int = 0
    stages: tuple[TrainingStage, ...] = ()

    def __post_init__(self) -> None:
        self._follow_stages()
        for name in ("length", "batch", "steps"):
            check_count(f"training.{name}", getattr(self, name))
        check_count("training.warmup", self.warmup, least=0)
        check_count("training.seed", self.seed, least=0)
        for name in ("learning_rate", "encoding_learning_rate", "embedding_learning_rate"):
            check_number(f"training.{name}", getattr(self, name), 0.0, 10.0, open_below=True)
        check_number("training.weight_decay", self.weight_decay, 0.0, 10.0)
        check_number("training.clip", self.clip, 0.0, 1e6, open_below=True)
        check_choice("training.optimizer", self.optimizer, get_args(OptimizerName))
        check_choice("training.precision", self.precision, get_args(TrainingPrecision))
        if self.length < 2:
            raise ValueError("training.length must be at least 2: a token and the one after it.")

    @property
    def all_stages(self) -> tuple[TrainingStage, ...]:
        """The stages; of a training without stages, one with all steps."""
        whole = TrainingStage(length=self.length, batch=self.batch, steps=self.steps)
        return self.stages or (whole,)

    def find_stage(self, step: int) -> tuple[int, TrainingStage]:
        """The number of the stage of a step, from 0, and the stage; steps count from 1.

        After the last step, it is the last stage.
        """
        stages = self.all_stages
        ends = accumulate(stage.steps for stage in stages)
        number = next((n for n, end in enumerate(ends) if step <= end), len(stages) - 1)
        return number, stages[number]

    def is_stage_end(self, step: int) -> bool:
        """Whether ``step`` is the last one of a stage; False in a training without stages."""
        ends = accumulate(stage.steps for stage in self.stages)
        return step in ends

    def count_tokens(self, steps: int) -> int:
        """Tokens of the first ``steps`` steps."""
        total = 0
        for stage in self.all_stages:
            total += max(0, min(steps, stage.steps)) * stage.batch * stage.length
            steps -= stage.steps
        return total

    def _follow_stages(self) -> None:
        """Set steps, length and batch by the stages, unless they were given and differ."""
        if not self.stages:
            return
        if not all(isinstance(stage, TrainingStage) for stage in self.stages):
            raise TypeError(f"training.stages must be stages; got {quote(list(self.stages))}.")
        last = self.stages[-1]
        total = sum(stage.steps for stage in self.stages)
        found = {"length": last.length, "batch": last.batch, "steps": total}
        for name, value in found.items():
            given, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            if given not in (value, default):
                raise ValueError(_describe_contradiction(name, value, given))
            object.__setattr__(self, name, value)


def _describe_contradiction(name: str, value: int, given: object) -> str:
    return (
        f"training.{name} must be left out or be {value}, which follows from training.stages; got"
        f" {quote(given)}."
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation lengths, as multiples of the trained length, and windows of held-out text.

    The loss is that of the last tokens of every window, as many as the shortest length has. So
    every length is evaluated on the same tokens, with more or less text before them. factor: the
    factor of scalings that are applied to the trained model.
    """

    multiples: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    windows: int = 64
    factor: float = 4.0

    def __post_init__(self) -> None:
        check_count("evaluation.windows", self.windows)
        check_number("evaluation.factor", self.factor, 1.0, 1024.0)
        for multiple in self.multiples:
            check_number("evaluation.multiples", multiple, 0.0, 1024.0, open_below=True)
        if not self.multiples or list(self.multiples) != sorted(set(self.multiples)):
            raise ValueError(
                f"evaluation.multiples must differ and be ascending, such as 0.5, 1, 2, 4;"
                f" got {list(self.multiples)}."
            )
        if 1.0 not in self.multiples:
            raise ValueError(
                "evaluation.multiples must contain 1, the trained length, which everything is"
                f" compared with; got {list(self.multiples)}."
            )


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """Trained weights that a run starts from; none by default.

    folder: the folder of a run, or one that ``export`` wrote. weights: a checksum of its weights,
    which ``train`` records, so that a run is not resumed with others.
    """

    folder: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        if self.folder == "" or (self.folder is None and self.weights is not None):
            raise ValueError("start.folder must be the path of a folder with trained weights.")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings that the results of a run depend on.

    >>> config = RunConfig(model=ModelConfig(encoding="alibi"))
    >>> RunConfig.from_dict(config.to_dict()) == config
    True
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    start: StartConfig = field(default_factory=StartConfig)

    def __post_init__(self) -> None:
        if self.data.mixed and self.model.kind != "decoder":
            raise ValueError(
                "data.mixed is for a decoder, whose rows have answers at their ends; got model.kind"
                f" = {quote(self.model.kind)}. Leave it out, or set model.kind = 'decoder'."
            )
        if self.data.masking == "words" and (self.model.kind, self.data.task) != (
            "encoder",
            "text",
        ):
            raise ValueError(
                "data.masking = 'words' is for an encoder on text; got model.kind ="
                f" {quote(self.model.kind)} and data.task = {quote(self.data.task)}. Leave it out,"
                " or set model.kind = 'encoder'."
            )
        lengths = self.lengths
        if lengths[0] < 2 or len(set(lengths)) != len(lengths):
            raise ValueError(
                f"evaluation.multiples {list(self.evaluation.multiples)} of a trained length of"
                f" {self.training.length} give lengths {lengths}; they must differ and be at"
                " least 2."
            )

    @property
    def lengths(self) -> list[int]:
        """Evaluation lengths in tokens, ascending."""
        return [round(m * self.training.length) for m in self.evaluation.multiples]

    @property
    def longest(self) -> int:
        """The longest sequence of training and evaluation."""
        trained = (stage.length for stage in self.training.all_stages)
        return max(*trained, *self.lengths)

    def to_dict(self) -> dict[str, Any]:
        """The config as plain values, without options that are None, which TOML does not have."""
        tables: dict[str, Any] = {}
        for part in dataclasses.fields(self):
            values = dataclasses.asdict(getattr(self, part.name))
            _drop_unused(values)
            tables[part.name] = {
                name: convert_to_plain(value) for name, value in values.items() if value is not None
            }
        return {name: table for name, table in tables.items() if table}

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> "RunConfig":
        """The config that ``to_dict`` gave; an unknown table or option is an error."""
        hints = get_type_hints(cls)
        known = [part.name for part in dataclasses.fields(cls)]
        parts: dict[str, Any] = {}
        for name, values in tables.items():
            if name not in known:
                raise ValueError(
                    f"unknown table [{name}]{suggest_name(name, known)} Known: {', '.join(known)}."
                )
            parts[name] = read_table(name, hints[name], values)
        config = cls(**parts)
        _check_given(config.training, tables.get("training", {}))
        return config

    def to_toml(self) -> str:
        """The config as the text of a TOML file."""
        writer = import_extra("tomli_w", by="whorl.lab", extra="lab")
        return str(writer.dumps(self.to_dict()))

    @classmethod
    def from_toml(cls, path: str | Path) -> "RunConfig":
        """The config in a TOML file; options that are not there have their defaults."""
        try:
            return cls.from_dict(read_toml(path))
        except TypeError as error:  # such as a string instead of a number
            raise ValueError(f"{str(path)!r}: {error}") from None


def _drop_unused(values: dict[str, Any]) -> None:
    """Remove options that have no effect in this config, so that files stay short."""
    for name, more in (("stages", ()), ("mixed", ("mixed_share",))):
        if not values.get(name, True):
            for key in (name, *more):
                del values[key]


def _check_given(training: TrainingConfig, given: Mapping[str, Any]) -> None:
    """An option that the stages contradict is an error, even if it is given as by default."""
    for name in ("length", "batch", "steps") if training.stages else ():
        if name in given and given[name] != getattr(training, name):
            value = getattr(training, name)
            raise ValueError(_describe_contradiction(name, value, given[name]))
