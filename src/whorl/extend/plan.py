"""``plan_extension``: read a config, try every method, rank them, and say what to write."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whorl.configs import ConfigError, LayerGroup, ModelPositions, load, read_config
from whorl.configs.huggingface.write import Dialect
from whorl.configs.inspection.config_writer import ConfigWriter
from whorl.configs.inspection.extension import (
    NOT_BY_FACTOR,
    ModelExtension,
    name_model,
    replace_scaling,
    select_extended_groups,
)
from whorl.configs.inspection.words import format_number
from whorl.scaling import Scaling

from .angles import combine_worst, measure_angles
from .methods import TITLES, check_method, extend_layers, list_methods
from .rank import RULE, find_first, rank_methods, write_reason
from .recipes import Recipe, RecipeInputs, build_recipes
from .report import ExtensionPlan, MethodReport
from .start import TrainedLength, find_trained_length
from .support import check_frameworks, mark_inexpressible
from .target import resolve_target

__all__ = ["plan_extension", "plan_scaling"]

#: What to do about files of other software, by their kind.
_ADVICE = {
    "gguf": "For flags of llama.cpp, plan with the config.json of the model that the GGUF file was"
    " converted from; whorl extend FILE.gguf --text tries the methods on its weights.",
}
_OTHERS = "Convert the model to the format of transformers first."


def plan_extension(
    config: Any, *, to: int | str, method: str | None = None, trained: int | None = None
) -> ExtensionPlan:
    """Which method makes a model longer, what it costs, and what to write.

    Args:
        config: what ``read_config`` takes: a config.json of transformers or mlx-lm, because it is
            what will be written.
        to: tokens, as an int or a text such as "128k", or a multiple of the trained length, "4x".
        method: the method to write, by default the recommended one.
        trained: trained length in tokens, if the config does not say.

    >>> plan = plan_extension("llama-2-7b", to="16k")
    >>> plan.recommended, plan.methods[0].angles.effective_context
    ('yarn', 16384)
    """
    if method is not None:
        check_method(method)
    planner, claimed_already = _open_planner(config, to, trained)
    methods, left_out = planner.try_methods()
    if method in left_out:
        raise ConfigError(f"method {method!r} does not fit this config: {left_out[method]}.")
    ranked = rank_methods(methods)
    if claimed_already:  # the publisher's own choice comes first
        ranked.sort(key=lambda each: each.name != "none")
    first = find_first(ranked)
    chosen = first if method is None else next(m for m in ranked if m.name == method)
    return planner.build_plan(
        config,
        ranked,
        chosen,
        claimed_already=claimed_already,
        recommended=None if first is None else first.name,
        reason=_write_reason(first, ranked, planner.start, keep=claimed_already),
        left_out={**NOT_BY_FACTOR, **left_out},
    )


def plan_scaling(
    config: Any,
    scaling: Scaling,
    *,
    name: str,
    title: str,
    to: int | str,
    trained: int | None = None,
) -> ExtensionPlan:
    """What a scaling of your own costs and what to write for it, as a plan with one method.

    name, title: of the method in the plan. The others are as in ``plan_extension``.
    """
    planner, _ = _open_planner(config, to, trained)
    method = planner.try_scaling(name, title, scaling)
    return planner.build_plan(
        config,
        [method],
        method,
        claimed_already=False,
        recommended=None,
        reason=f"{name}: given, not chosen by the rule.",
        left_out={},
    )


def _open_planner(config: Any, to: int | str, trained: int | None) -> "tuple[_Planner, bool]":
    """What tries methods on a config, and whether the config claims the target already."""
    document = load(config)
    model = read_config(document)
    writer = ConfigWriter(document, model)
    groups = _select_groups(writer)
    start = find_trained_length(model, groups[0], trained)
    target = resolve_target(to, start.tokens)
    claimed_already = _check_target(model, groups[0], start, target)
    return _Planner(writer, groups, target, start), claimed_already


def _select_groups(writer: ConfigWriter) -> tuple[LayerGroup, ...]:
    """The groups of layers to extend."""
    model = writer.model
    if writer.dialect is None:
        raise ConfigError(
            f"config must be a config.json of transformers or mlx-lm, which is what is written; got"
            f" one of {model.kind}. {_ADVICE.get(model.kind, _OTHERS)} whorl inspect --extend shows"
            " what a method does to it."
        )
    rotating = [group for group in model.groups if group.rotation is not None]
    if not rotating:
        why = next((group.refusal for group in model.groups if group.refusal), None)
        what = why or f"{name_model(model)} {model.unrotated}, so there is nothing to extend."
        raise ConfigError(what)
    return tuple(select_extended_groups(rotating, writer.keys))


def _check_target(
    model: ModelPositions, group: LayerGroup, start: TrainedLength, target: int
) -> bool:
    """Whether a config with a scaling claims the target; refuse a target that needs no method."""
    assert group.rotation is not None
    scaled = group.rotation.options.get("scaling") is not None
    claimed, needed = model.context or 0, start.tokens
    if not scaled and start.rule != "given":
        needed = max(needed, claimed)
    if target <= needed:
        what = "the trained length" if needed == start.tokens else "what the config claims"
        raise ConfigError(
            f"to must be longer than {what}, {format_number(needed)} tokens, up to which the model"
            f" works as it is; got {format_number(target)} tokens."
        )
    return scaled and target <= claimed


def _write_reason(
    first: MethodReport | None, ranked: list[MethodReport], start: TrainedLength, *, keep: bool
) -> str:
    if first is None:
        return "No framework runs any of the methods on this model, so none is recommended."
    if keep:
        return "none: the published config claims this length, so its own scaling comes first."
    return write_reason(first, ranked, start.tokens)


def _write_configs(
    writer: ConfigWriter, lines: Mapping[Dialect, Mapping[str, Any] | None]
) -> dict[Dialect, dict[str, Any]]:
    """The whole config in each dialect that has lines."""
    return {name: writer.write(found) for name, found in lines.items() if found is not None}


@dataclass(frozen=True)
class _Planner:
    """Tries methods on the extended groups of one model."""

    writer: ConfigWriter
    groups: tuple[LayerGroup, ...]
    target: int
    start: TrainedLength

    def try_methods(self) -> tuple[list[MethodReport], dict[str, str]]:
        """Every method that fits the model, and the others with the reason."""
        found, left_out = list[MethodReport](), dict[str, str]()
        for name in list_methods():
            try:
                found.append(self.try_method(name))
            except ConfigError as error:
                left_out[name] = str(error).rstrip(".")
        if not found:
            raise ConfigError(f"{next(iter(left_out.values()))}.")
        return found, left_out

    def try_method(self, name: str) -> MethodReport:
        made = extend_layers(self.writer.model, self.groups, name, self.start.tokens, self.target)
        scaling = made[0].scaling
        return self._report(name, TITLES.get(name, repr(scaling)), made)

    def try_scaling(self, name: str, title: str, scaling: Scaling) -> MethodReport:
        model, trained = self.writer.model, self.start.tokens
        made = [
            replace_scaling(model, group, name, self.target / trained, trained, lambda _: scaling)
            for group in self.groups
        ]
        return self._report(name, title, made)

    def _report(self, name: str, title: str, made: list[ModelExtension]) -> MethodReport:
        extensions = {id(group): each for group, each in zip(self.groups, made, strict=True)}
        angles = combine_worst(
            measure_angles(group, extensions[id(group)], self.target) for group in self.groups
        )
        lines, extensions = self.writer.write_lines(extensions)
        first = next(iter(extensions.values()))
        if lines["transformers 5"] is None:
            why = next((each.why for each in extensions.values() if each.why), None)
            support = mark_inexpressible(why or "transformers cannot express it")
        else:
            why, support = None, check_frameworks(self.writer, lines, self.target)
        scaling = None if name == "none" else first.scaling
        return MethodReport(name, title, scaling, angles, support, lines, why)

    def build_plan(
        self,
        config: Any,
        methods: Sequence[MethodReport],
        chosen: MethodReport | None,
        *,
        claimed_already: bool,
        **words: Any,
    ) -> ExtensionPlan:
        """The plan of ranked methods, with what to write for the chosen one.

        words: the fields that say which is recommended, why, and what was left out.
        """
        writer = self.writer
        keep = claimed_already and chosen is not None and chosen.name == "none"
        return ExtensionPlan(
            source=str(config) if isinstance(config, (str, os.PathLike)) else type(config).__name__,
            model_type=writer.model.model_type,
            trained=self.start,
            claimed=writer.model.context,
            target=self.target,
            claimed_already=claimed_already,
            methods=tuple(methods),
            chosen=None if chosen is None else chosen.name,
            rule=RULE,
            recipes=() if chosen is None else self.write_recipes(chosen, config, keep=keep),
            dialect=writer.dialect,
            path=writer.document.path,
            configs={} if chosen is None or keep else _write_configs(writer, chosen.lines),
            **words,
        )

    def write_recipes(self, method: MethodReport, config: Any, *, keep: bool) -> tuple[Recipe, ...]:
        """What to write for a method."""
        path = self.writer.document.path
        folder = "MODEL" if path is None else str(path.parent)
        if isinstance(config, (str, os.PathLike)) and os.path.isdir(config):
            folder = str(config)
        given = RecipeInputs(
            self.writer,
            self.groups,
            method.scaling,
            method.lines,
            method.support,
            self.target,
            keep=keep,
            folder=folder,
        )
        return build_recipes(given)
