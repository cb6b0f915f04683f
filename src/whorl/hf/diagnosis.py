"""Whether a loaded model does with positions what its config says.

A config may be right and the model in memory wrong: a loader that fills buffers on the meta device
with anything, one that ignores the scaling or applies another, weights cast together with the
frequencies, a config that was changed after loading, weights in another layout.

    frequencies    of rotary modules, and tables of sin and cos
    settings       windows, scales and switches of attention; config keys without effect
    layouts        what the weights of q and k show
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from whorl._support.words import quote
from whorl.configs import ConfigError, ModelPositions, read_config

from .families.rotary import WhorlRotaryEmbedding
from .findings import LiveFinding
from .frequencies import compare_frequencies, compare_table, find_buffers
from .layouts import find_layout_problem
from .settings import compare_attention, find_attention_modules, find_unused_keys

__all__ = ["LiveDiagnosis", "LiveFinding", "diagnose"]


@dataclass(frozen=True)
class LiveDiagnosis:
    """What is wrong with the positions of a loaded model.

    checked: paths of the frequencies and tables that were compared. attention: those of the
    attention modules that were. skipped: modules that were not, by path, each with the reason.
    """

    model: str
    findings: tuple[LiveFinding, ...]
    checked: tuple[str, ...]
    skipped: dict[str, str]
    attention: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[LiveFinding, ...]:
        """The findings that change what the model computes."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "model": self.model,
            "findings": [asdict(finding) for finding in self.findings],
            "checked": list(self.checked),
            "attention": list(self.attention),
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        count = _count(len(self.findings), "problem")
        compared = " and ".join(
            _count(len(paths), thing)
            for paths, thing in ((self.checked, "table"), (self.attention, "attention module"))
        )
        head = f"{self.model}: {count}; compared {compared}."
        notes = [f"not compared: {where}: {why}" for where, why in self.skipped.items()]
        return "\n".join([head, *map(str, self.findings), *notes])


def diagnose(model: PreTrainedModel) -> LiveDiagnosis:
    """Compare what a loaded model does with positions with what its config says.

    That is: the frequencies that it rotates by, tables of sin and cos, the windows, scales and
    switches of its attention, and the layout of the weights of q and k; also keys of the config
    that change nothing. Nothing is changed, and the model is not run.

    >>> from transformers import LlamaConfig, LlamaModel
    >>> import whorl
    >>> sizes = dict(hidden_size=64, num_attention_heads=4, intermediate_size=64, vocab_size=10)
    >>> model = LlamaModel(LlamaConfig(num_hidden_layers=1, **sizes))
    >>> print(whorl.hf.diagnose(model))
    LlamaModel: 0 problems; compared 1 table and 1 attention module.
    >>> model.rotary_emb.inv_freq /= 4
    >>> whorl.hf.diagnose(model).errors[0].message
    'the frequencies are 1/4 of those that the config gives, as after linear scaling by 4.'
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            "whorl.hf.diagnose: model must be a model of transformers, such as"
            f" AutoModel.from_pretrained(...) gives; got {quote(model)}."
        )
    record = _Record()
    for path, module in model.named_modules():
        record.compare_rotation(path, module)
    for path, module in find_attention_modules(model):
        record.compare_settings(path, module)
    record.findings += find_unused_keys(model)
    problem = find_layout_problem(model)
    if problem is not None:
        remedy = "Convert the weights (whorl convert FOLDER OUT), or correct the config."
        record.findings.append(LiveFinding("error", "q and k", f"{problem}.", remedy))
    return LiveDiagnosis(
        type(model).__name__,
        tuple(record.findings),
        tuple(record.checked),
        record.skipped,
        tuple(record.attention),
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@dataclass
class _Record:
    """What was found so far."""

    findings: list[LiveFinding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    attention: list[str] = field(default_factory=list)

    def compare_rotation(self, path: str, module: nn.Module) -> None:
        """Frequencies of a rotary module, or the table of one that has a table."""
        if isinstance(module, WhorlRotaryEmbedding):  # the module that it replaced is inside
            self.skipped[path] = (
                "whorl.hf.install replaced it, and it goes by what install was told"
            )
            return
        table = getattr(module, "embed_positions", None)
        is_rotary = type(module).__name__.endswith("RotaryEmbedding")
        if not is_rotary and table is None:
            return
        try:
            config = getattr(module, "config", None)
            if config is None:
                raise ConfigError("it has no config of its own")
            positions = read_config(config, parity="transformers")
            if not is_rotary:
                self._compare_tables(path, table, positions)
                return
            if any(g.rotation and g.rotation.encoding == "axial_rope" for g in positions.groups):
                raise ConfigError("it rotates by rows and columns, with one table for both")
            for name, group in find_buffers(module, positions):
                self.checked.append(f"{path}.{name}")
                self.findings += compare_frequencies(module, name, group, f"{path}.{name}")
        except ConfigError as error:
            self.skipped[path] = str(error)

    def _compare_tables(self, path: str, table: Any, positions: ModelPositions) -> None:
        group = next((group for group in positions.groups if group.rotation is not None), None)
        weight = table if isinstance(table, Tensor) else getattr(table, "weight", None)
        if group is not None and isinstance(weight, Tensor):
            where = f"{path}.embed_positions"
            self.checked.append(where)
            self.findings += compare_table(weight, group, where)

    def compare_settings(self, path: str, module: nn.Module) -> None:
        """Windows, scales and switches of one attention."""
        try:
            self.findings += compare_attention(module, path)
            self.attention.append(path)
        except TypeError as error:
            self.skipped[path] = str(error)
