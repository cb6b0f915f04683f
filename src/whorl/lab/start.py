"""Trained weights that another run starts from: what fits is kept, the rest is dropped or new.

    whorl train --from runs/rope --length 512      a run of whorl train or whorl compare
    whorl train --from my-llama --encoding alibi   a folder that --export wrote

A weight is kept if it has the same name and shape in both models. The parameters of an encoding are
kept if both models have that encoding, alone or in a composition. Two tables are kept in part if
they have another number of rows: learned positions, and the embeddings and the output of a
vocabulary that grows by the mask token. Everything can be trained, and the optimizer starts anew.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whorl._support.words import quote
from whorl.encodings import Composition, Encoding, Learned

from .config import RunConfig, StartConfig, TrainingConfig
from .encodings import format_title
from .integrity import compute_checksum, compute_tensor_checksum
from .llama import is_exported, read_exported
from .model import LanguageModel
from .runs import Run

__all__ = ["StartWeights", "WeightMatch", "describe_start", "match_weights", "read_start"]

# What both models must share, by the name of the option in TOML.
_SHAPE = {
    "architecture": "architecture",
    "layers": "layers",
    "width": "width",
    "heads": "heads",
    "kv_heads": "key_heads",
    "hidden": "inner",
    "tied": "tied",
}
# Settings of a training that those of another one say nothing about.
_FRESH = (
    "steps",
    "warmup",
    "learning_rate",
    "encoding_learning_rate",
    "embedding_learning_rate",
)


@dataclass(frozen=True, eq=False)
class StartWeights:
    """A trained model, its settings, its last step (None if unknown) and a checksum of it."""

    folder: str
    model: LanguageModel
    config: RunConfig
    step: int | None
    checksum: str

    @property
    def settings(self) -> RunConfig:
        """Settings of a run that goes on: those of this model, but default steps and rates."""
        old, default = self.config.training, TrainingConfig()
        fresh: dict[str, Any] = {name: getattr(default, name) for name in _FRESH}
        start = StartConfig(folder=self.folder)
        return replace(self.config, training=replace(old, stages=(), **fresh), start=start)

    def record(self, config: RunConfig) -> RunConfig:
        """``config`` with the checksum of these weights; ValueError if it has another one."""
        known = config.start.weights
        if known not in (None, self.checksum):
            raise ValueError(
                f"start.folder {quote(self.folder)} has other weights than those that"
                " start.weights names: it was trained again since. Leave out start.weights to use"
                " these."
            )
        return replace(config, start=StartConfig(folder=self.folder, weights=self.checksum))


@dataclass(frozen=True, eq=False)
class WeightMatch:
    """Pairs of a weight and the trained one that it is set to, and a report as plain values."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    report: dict[str, Any]

    @torch.no_grad()
    def copy(self) -> None:
        """Set the weights of the new model; of tables with fewer rows, the rows that both have."""
        for new, old in self.pairs:
            rows = min(len(new), len(old))
            new[:rows].copy_(old[:rows])


def read_start(folder: str | Path) -> StartWeights:
    """The trained model in a folder of a run, or in one that ``export`` wrote."""
    model: LanguageModel
    if is_exported(Path(folder)):
        model, config = read_exported(Path(folder))
        step = None
    else:
        run = Run(folder)
        model, config = run.load_model(), run.load_config()
        step = int(run.read_metrics()[-1]["step"])
    checksums = {name: compute_tensor_checksum(w.detach()) for name, w in model.named_parameters()}
    return StartWeights(str(folder), model, config, step, compute_checksum(checksums))


def match_weights(start: StartWeights, model: LanguageModel, config: RunConfig) -> WeightMatch:
    """What ``model``, which ``config`` describes, takes from ``start``.

    Raises:
        ValueError: the models differ in shape.
    """
    _check_shapes(start, config)
    same_tokens = _is_same_tokenizer(start.config.data.tokenizer, config.data.tokenizer)
    old, new = _list_weights(start.model), _list_weights(model)
    pairs: list[tuple[Tensor, Tensor]] = []
    whole, part, fresh = [], [], []
    for key, one in new.items():
        other = old.get(key)
        tokens = model.name_part(one.name) in ("embedding", "head")
        if other is None or (tokens and not same_tokens):
            fresh.append(one)
        elif one.weight.shape == other.weight.shape:
            whole.append(one)
            pairs.append((one.weight, other.weight))
        elif (tokens or one.table) and one.weight.shape[1:] == other.weight.shape[1:]:
            rows = min(len(one.weight), len(other.weight))
            part.append({"name": one.name, "rows": rows, "of": len(one.weight)})
            pairs.append((one.weight, other.weight))
        else:
            fresh.append(one)
    used = {id(weight) for _, weight in pairs}
    dropped = [one for one in old.values() if id(one.weight) not in used]
    report = {
        "folder": start.folder,
        "weights": start.checksum,
        "encoding": format_title(start.config.model.encoding),
        "step": start.step,
        "changed": _list_changes(start.config, config),
        "kept": _group_weights(model, whole),
        "kept_in_part": part,
        "dropped": _group_weights(start.model, dropped),
        "new": _group_weights(model, fresh),
    }
    return WeightMatch(tuple(pairs), report)


def describe_start(report: Mapping[str, Any]) -> str:
    """The report of ``match_weights`` in one sentence."""
    step = "" if report["step"] is None else f", step {report['step']}"
    part = [f"{one['name']} ({one['rows']} of {one['of']} rows)" for one in report["kept_in_part"]]
    return (
        f"started from {quote(report['folder'])} ({report['encoding']}{step});"
        f" kept: {_join_groups(report['kept'])};"
        + (f" kept in part: {', '.join(part)};" if part else "")
        + f" dropped: {_join_groups(report['dropped'])}; new: {_join_groups(report['new'])}"
    )


def _join_groups(groups: list[Mapping[str, Any]]) -> str:
    words = (f"{one['part']} ({one['parameters']:,} parameters)" for one in groups)
    return ", ".join(words) or "nothing"


@dataclass(frozen=True, eq=False)
class _NamedWeight:
    """A weight with its name; table: whether its rows are positions from 0."""

    name: str
    weight: Tensor
    table: bool = False


def _list_weights(model: LanguageModel) -> dict[str, _NamedWeight]:
    """Weights by a key that is the same in models with other encodings.

    The key of an encoding's parameter has the name of the encoding instead of its place in a
    composition: "encoding learned 0 weight".
    """
    names = {id(weight): name for name, weight in model.named_parameters()}
    found = {name: _NamedWeight(name, weight) for name, weight in model.named_parameters()}
    count: dict[str, int] = defaultdict(int)
    for path, module in model.named_modules():
        if not isinstance(module, Encoding) or isinstance(module, Composition):
            continue
        kind = f"{path.split('._parts.')[0]} {module.name}"
        for local, weight in module.named_parameters():
            del found[name := names[id(weight)]]
            one = _NamedWeight(name, weight, isinstance(module, Learned))
            found[f"{kind} {count[kind]} {local}"] = one
        count[kind] += 1
    return found


def _group_weights(model: LanguageModel, weights: list[_NamedWeight]) -> list[dict[str, Any]]:
    groups: dict[str, list[_NamedWeight]] = defaultdict(list)
    for one in weights:
        groups[model.name_part(one.name)].append(one)
    return [
        {
            "part": part,
            "parameters": sum(one.weight.numel() for one in group),
            "names": [one.name for one in group],
        }
        for part, group in groups.items()
    ]


def _list_changes(old: RunConfig, new: RunConfig) -> list[dict[str, Any]]:
    """Settings of the model, the data and the length that differ, with both values."""
    before, after = old.to_dict(), new.to_dict()
    tables = [("model", set(before["model"]) | set(after["model"]))]
    tables += [("data", set(before["data"]) | set(after["data"])), ("training", {"length"})]
    return [
        {"name": f"{table}.{name}", "from": before[table].get(name), "to": after[table].get(name)}
        for table, names in tables
        for name in sorted(names)
        if before[table].get(name) != after[table].get(name)
    ]


def _check_shapes(start: StartWeights, config: RunConfig) -> None:
    for option, name in _SHAPE.items():
        here, there = getattr(config.model, name), getattr(start.config.model, name)
        if here != there:
            raise ValueError(
                f"model.{option} must be {quote(there)}, as in {quote(start.folder)}, whose weights"
                f" the run starts from; got {quote(here)}. Leave it out, or start from others."
            )


def _is_same_tokenizer(one: str | None, other: str | None) -> bool:
    if one == other or one is None or other is None:
        return one == other
    try:
        return Path(one).read_bytes() == Path(other).read_bytes()
    except OSError:
        return False
