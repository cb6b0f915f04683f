"""``inspect``: read a config, measure each group of layers, compare with other frameworks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from whorl._support.words import quote
from whorl.configs import (
    ConfigError,
    Document,
    LayerGroup,
    ModelPositions,
    Parity,
    load,
    read_config,
)
from whorl.configs.huggingface.write import Dialect

from .config_writer import ConfigWriter
from .extension import ModelExtension, describe_scaling, name_model, select_extended_groups
from .extension import extend as put
from .frameworks import ConfiguredLayers, FrameworkComparison, compare_frameworks
from .lengths import (
    count_complete_in_training,
    find_extension_start,
    find_trained_context,
    limit_by_window,
    measure_length,
)
from .pairs import compute_wavelengths, count_complete
from .report import GroupReport, Inspection

__all__ = ["inspect"]


def inspect(
    x: Any,
    *,
    length: int | None = None,
    extend: str | None = None,
    factor: float | None = None,
    trained: int | None = None,
    layer_type: str | None = None,
    parity: Parity | None = None,
) -> Inspection:
    """How a model treats positions, and what a longer text or an extension would do.

    Args:
        x: what ``read_config`` takes.
        length: context length in tokens to examine.
        extend, factor: name of a scaling, and the new length divided by the trained length; by
            default the smallest factor that ``length`` needs.
        trained: trained length in tokens, if the config does not say.
        layer_type: only layers of this type.
        parity: as for ``read_config``.

    >>> found = inspect("llama-3.1-8b", length=131_072)
    >>> found.groups[0].description.effective_context
    65536
    """
    _check_lengths(length, trained)
    if factor is not None and extend is None:
        raise ConfigError("factor needs extend=, the name of the scaling to extend by.")
    document = load(x)
    model = read_config(document, parity=parity)
    inspector = _Inspector(document, model, length, trained)
    chosen = model.groups if layer_type is None else (model.group(layer_type),)
    extensions: dict[int, ModelExtension] = {}
    if extend is not None:
        extensions = inspector.extend_groups(chosen, extend, factor, whole=layer_type is None)
    writer = inspector.writer
    lines, extensions = writer.write_lines(extensions)
    reports = [inspector.build_report(group, extensions.get(id(group))) for group in chosen]
    if extensions:
        reports = inspector.compare_extended(reports, lines)
    source = str(x) if isinstance(x, (str, os.PathLike)) else type(x).__name__
    new, old = (
        writer.nest_lines(lines[dialect]) for dialect in ("transformers 5", "transformers 4")
    )
    return Inspection(source, model, tuple(reports), length, new, old, writer.dialect)


def _check_lengths(length: int | None, trained: int | None) -> None:
    for name, value in (("length", length), ("trained", trained)):
        if value is not None and (type(value) is not int or not 0 < value <= 2**40):
            raise ConfigError(
                f"{name} must be a number of tokens, an int from 1 to 2**40; got {quote(value)}."
            )


@dataclass(frozen=True)
class _Inspector:
    """Measures the groups of layers of one model.

    length, given_trained: the arguments ``length`` and ``trained`` of ``inspect``.
    """

    document: Document
    model: ModelPositions
    length: int | None
    given_trained: int | None

    @property
    def writer(self) -> ConfigWriter:
        return ConfigWriter(self.document, self.model)

    def compare_extended(
        self, reports: list[GroupReport], lines: Mapping[Dialect, Mapping[str, Any] | None]
    ) -> list[GroupReport]:
        """The reports, with how other frameworks read the extended config."""
        writer = self.writer
        if writer.dialect is None:
            return reports
        written = lines[writer.dialect] or lines["transformers 5"]
        if written is None:
            return [replace(each, frameworks=_mark_inexpressible(each)) for each in reports]
        data = writer.write(written)
        model = read_config(data, parity=self.model.parity)
        tokens = max(each.extension.length for each in reports if each.extension is not None)
        inspector = _Inspector(load(data), model, self.length or tokens, None)
        judged = []
        for each in reports:
            group = model.groups[self.model.groups.index(each.group)]
            found = inspector.compare_group(group) if group.rotation is not None else ()
            found = tuple(replace(one, config="as extended") for one in found)
            judged.append(replace(each, frameworks=found))
        return judged

    def extend_groups(
        self, chosen: Sequence[LayerGroup], name: str, factor: float | None, *, whole: bool
    ) -> dict[int, ModelExtension]:
        """Extensions by the id() of their group; ``whole``: only groups that need an extension."""
        rotating = [group for group in chosen if group.rotation is not None]
        if not rotating:
            raise ConfigError(f"{name_model(self.model)} has no rotation that could be extended.")
        found = {}
        for group in select_extended_groups(rotating, self.writer.keys) if whole else rotating:
            tokens = find_extension_start(self.model, group, self.given_trained)
            by = _choose_factor(self.length, factor, tokens)
            published = find_trained_context(self.model, group, self.given_trained)
            found[id(group)] = put(self.model, group, name, by, tokens, published)
        return found

    def build_report(self, group: LayerGroup, extension: ModelExtension | None) -> GroupReport:
        if group.rotation is None:
            return GroupReport(group)
        rope: Any = group.rotation.build_without_tables()
        config, grid = rope.config, group.rotation.encoding == "axial_rope"
        now = self.length or self.model.context or self.model.trained_context
        found = rope.frequencies(None if grid else now)
        inv_freq: Tensor = found.inv_freq.detach().double().flatten()
        lengths = compute_wavelengths(inv_freq)
        known = [value for value in lengths if value is not None]
        base = getattr(config, "base", None)
        published = self.compare_group(group)
        return GroupReport(
            group,
            encoding=group.rotation.encoding,
            layout=config.layout,
            base=None if isinstance(base, tuple) or getattr(config, "inv_freq", None) else base,
            head_dim=config.head_dim,
            head_channels=config.head_dim + self._count_unrotated_channels(),
            rotated=config.width,
            pairs=len(inv_freq),
            unused=len(lengths) - len(known),
            fastest=min(known, default=None),
            slowest=max(known, default=None),
            attention_scale=float(found.attention_scale),
            extension=extension,
            frameworks=published,
            frameworks_as_published=published,
            wavelengths=tuple(lengths),
            **({} if grid else self._measure_lengths(group, rope, now, inv_freq)),
        )

    def _count_unrotated_channels(self) -> int:
        """Channels of a head in latent attention that are not rotated."""
        latent = any(note.id == "mla" for note in self.model.notes)
        found = self.writer.keys.get("qk_nope_head_dim") if latent else None
        return found if isinstance(found, int) and found > 0 else 0

    def _measure_lengths(
        self, group: LayerGroup, rope: Any, now: int | None, inv_freq: Tensor
    ) -> dict[str, Any]:
        """Measurements within the trained length, the claimed context and the requested length."""
        trained = find_trained_context(self.model, group, self.given_trained)
        window = group.window
        seen, claimed = (limit_by_window(n, window) for n in (trained, self.model.context))
        description, at = describe_scaling(rope, now, trained, window), None
        longest = max(now, self.model.context or 0) if now else now
        furthest = (
            description if longest == now else describe_scaling(rope, longest, trained, window)
        )
        if self.length is not None:
            at = measure_length(inv_freq, description, trained, group.window, self.length)
        return {
            "training_length": trained,
            "trained": None if seen is None else count_complete_in_training(description, seen),
            "claimed": None
            if claimed is None
            else count_complete(rope.frequencies(self.model.context).inv_freq.flatten(), claimed),
            "description": description,
            "furthest": furthest,
            "bound": None if claimed and claimed == self.model.context else group.window,
            "at_length": at,
        }

    def compare_group(self, group: LayerGroup) -> tuple[FrameworkComparison, ...]:
        """How other frameworks read a group with one axis; only configs of transformers and mlx."""
        assert group.rotation is not None
        model = self.model
        if model.kind not in ("transformers", "mlx") or group.rotation.encoding != "rope":
            return ()
        lengths = [self.length or model.context or model.trained_context or 2048]
        scaling = group.rotation.options.get("scaling")
        if self.length is None and scaling is not None and scaling.follows_length:
            lengths[:0] = filter(None, [scaling.short_context_limit])
        return compare_frameworks(ConfiguredLayers(model, group, self.document.data), lengths)


def _mark_inexpressible(report: GroupReport) -> tuple[FrameworkComparison, ...]:
    """Comparisons that say that no config.json can ask for the extension."""
    extension = report.extension
    if extension is None:
        return report.frameworks
    return tuple(
        FrameworkComparison(
            *(each.framework, each.version, each.basis, "inexpressible"),
            why=extension.why,
            config="as extended",
        )
        for each in report.frameworks
    )


def _choose_factor(length: int | None, factor: float | None, trained: int | None) -> float:
    if factor is not None:
        return factor
    if length is None or trained is None:
        raise ConfigError(
            "extend needs factor, the new length divided by the trained length, or length, from"
            " which it follows."
        )
    return max(1.0, length / trained)
