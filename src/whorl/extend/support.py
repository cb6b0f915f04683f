"""Which frameworks run an extended config as it is meant, by the evidence of ``whorl inspect``.

The lines of a method are written into the config, in each dialect that can express them, and the
rules of each framework are applied to the result. A framework runs the method if it reads at least
one of the two as the rotation that is meant:

    runs            reads it as it is meant
    differs         reads it, and rotates by something else
    refuses         stops with an error
    inexpressible   no config.json can ask for it
    unknown         not known: its code for this family was not read

transformers 4 is not installed where the tests run, so its rule is by reading: it runs what its
keys can express, ``rope_scaling`` with the types of its modeling_rope_utils.py. Version 4.52 or
later is meant: before, YaRN ignored original_max_position_embeddings. Whether a release of version
4 has the model type at all is not checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from whorl.configs import read_config
from whorl.configs.huggingface.write import DIALECTS, Dialect
from whorl.configs.inspection.config_writer import ConfigWriter
from whorl.configs.inspection.frameworks import (
    FRAMEWORKS,
    ConfiguredLayers,
    FrameworkComparison,
    compare_frameworks,
)

__all__ = ["OLD", "FrameworkSupport", "check_frameworks", "list_frameworks", "mark_inexpressible"]

Outcome = Literal["runs", "differs", "refuses", "unknown", "inexpressible"]

#: transformers 4, which has no file among the frameworks: the dialect is its rule.
OLD = ("transformers 4", "4.52+", "by reading")
_NEW = "transformers 5"
_ORDER = (OLD[0], _NEW, "vLLM", "llama.cpp", "mlx-lm")
_OUTCOMES: dict[str, Outcome] = {"agrees": "runs", "differs": "differs", "refuses": "refuses"}
#: Of several layer groups the first of these counts, of several dialects the last.
_WORST: tuple[Outcome, ...] = ("refuses", "differs", "unknown", "runs")


@dataclass(frozen=True)
class FrameworkSupport:
    """Whether a framework runs a method.

    dialects: those in which it reads the written config as it is meant.
    why: what it does instead, or why that is not known.
    """

    framework: str
    version: str
    basis: str
    outcome: Outcome
    dialects: tuple[Dialect, ...] = ()
    why: str | None = None

    @property
    def runs(self) -> bool:
        return self.outcome == "runs"

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "dialects": list(self.dialects)}


def list_frameworks() -> list[tuple[str, str, str]]:
    """Name, version and basis of each framework, in the order of the tables."""
    found = [OLD, *((_rename(f.NAME), f.VERSION, f.BASIS) for f in FRAMEWORKS)]
    return sorted(found, key=lambda each: _ORDER.index(each[0]) if each[0] in _ORDER else 99)


def mark_inexpressible(why: str) -> tuple[FrameworkSupport, ...]:
    """No framework, because no config.json can ask for the method."""
    return tuple(FrameworkSupport(*each, "inexpressible", why=why) for each in list_frameworks())


def check_frameworks(
    writer: ConfigWriter, lines: Mapping[Dialect, Mapping[str, Any] | None], target: int
) -> tuple[FrameworkSupport, ...]:
    """Which frameworks run the config with these lines in texts of ``target`` tokens."""
    judged: dict[str, dict[Dialect, tuple[Outcome, str | None]]] = {}
    for dialect in DIALECTS:
        written = lines[dialect]
        if written is not None:
            data = writer.write(written)
            for name, outcome in _compare_written(data, writer.model.parity, target):
                judged.setdefault(name, {})[dialect] = outcome
    return tuple(
        _check_old(lines) if each == OLD else _select_best(each, judged.get(each[0], {}))
        for each in list_frameworks()
    )


def _check_old(lines: Mapping[Dialect, Mapping[str, Any] | None]) -> FrameworkSupport:
    if lines["transformers 4"] is not None:
        return FrameworkSupport(*OLD, "runs", ("transformers 4",))
    return FrameworkSupport(*OLD, "inexpressible", why="its keys cannot express this")


def _compare_written(
    data: dict[str, Any], parity: Any, target: int
) -> Iterator[tuple[str, tuple[Outcome, str | None]]]:
    """The outcome of each framework for a written config, the worst of all its layers."""
    model = read_config(data, parity=parity)
    found: dict[str, list[tuple[Outcome, str | None]]] = {}
    for group in model.groups:
        if group.rotation is None:
            continue
        if group.rotation.encoding != "rope":
            yield _NEW, ("runs", None)  # the lines were read as transformers reads them
            continue
        for each in compare_frameworks(ConfiguredLayers(model, group, data), [target]):
            outcome = _OUTCOMES.get(each.outcome, "unknown")
            found.setdefault(_rename(each.framework), []).append((outcome, _explain(each)))
    for name, outcomes in found.items():
        yield name, min(outcomes, key=lambda each: _WORST.index(each[0]))


def _select_best(
    who: tuple[str, str, str], found: Mapping[Dialect, tuple[Outcome, str | None]]
) -> FrameworkSupport:
    """The best outcome over the dialects."""
    if not found:
        return FrameworkSupport(*who, "unknown", why="a rotation on several axes was not compared")
    outcome, why = max(found.values(), key=lambda each: _WORST.index(each[0]))
    dialects = tuple(dialect for dialect, each in found.items() if each[0] == "runs")
    return FrameworkSupport(*who, outcome, dialects, None if outcome == "runs" else why)


def _rename(framework: str) -> str:
    """The name of a framework beside transformers 4."""
    return _NEW if framework == "transformers" else framework


def _explain(each: FrameworkComparison) -> str | None:
    """What a framework does instead of what is meant."""
    if each.why is not None:
        return each.why
    if each.remarks:
        return each.remarks[0].text
    return f"{' and '.join(each.differs)} differ" if each.differs else None
