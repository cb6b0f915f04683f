"""How transformers 5 reads a config: by ``read_config(parity="transformers")``.

The tests compare that with the installed package. Its frequencies are float32; the rounding does
not count as a difference.
"""

from whorl.configs import ConfigError, LayerGroup, ModelPositions, read_config
from whorl.configs.huggingface import classes, defaults
from whorl.configs.inspection.patches import explain_unknown_type

from .base import ConfiguredLayers, FrameworkReading, Remark, make_refusal, make_unknown

__all__ = ["BASIS", "NAME", "VERSION", "read", "shorten_refusal"]

NAME, VERSION, BASIS = "transformers", defaults.get_version(), "executed in tests"

_UTILS = f"transformers {VERSION}, modeling_rope_utils.py"


def read(case: ConfiguredLayers) -> FrameworkReading:
    why = explain_unknown_type(
        case.whole.get("model_type"), case.part.keys.get("model_type", case.part.model_type)
    )
    if why is not None:
        return make_unknown(why)
    stops = next(classes.list_refusals(case.data, case.model_type, case.kind), None)
    if stops is not None:
        return make_refusal(stops, f"transformers {VERSION}, configuration of {case.model_type}")
    replaced = classes.explain_replaced_head(case.data, case.model_type)
    if replaced is not None:
        return make_unknown(replaced)
    try:
        theirs = read_config(case.whole, parity="transformers")
    except ConfigError as error:
        return make_refusal(shorten_refusal(str(error)), _UTILS)
    group = _find_same_layers(case.group, case.model, theirs)
    if group is None or group.rotation is None:
        return make_unknown("transformers puts these layers into other groups")
    options = {**group.rotation.options, "precision": "float32"}
    return FrameworkReading(
        options,
        softmax_scale=group.softmax_scale,
        layout=options.get("layout", "half"),
        remarks=tuple(_list_remarks(case)),
    )


def shorten_refusal(text: str) -> str:
    """The reason alone, from the error of ``read_config`` about a refused config."""
    why = text.partition("nothing to follow: ")[2].partition("; leave parity out")[0]
    return why or text.rstrip(".")


def _find_same_layers(
    mine: LayerGroup, ours: ModelPositions, theirs: ModelPositions
) -> LayerGroup | None:
    """The group that contains all of these layers; None if they are in several groups."""
    if not mine.layers:
        index = ours.groups.index(mine)
        return theirs.groups[index] if len(ours.groups) == len(theirs.groups) else None
    found = [other for other in theirs.groups if set(mine.layers) <= set(other.layers)]
    return found[0] if found else None


def _list_remarks(case: ConfiguredLayers) -> list[Remark]:
    found = []
    if case.kind == "dynamic" and "alpha" not in case.parameters:
        found.append(
            Remark(
                "the longest length so far sets the frequencies of the whole batch; keys cached"
                " before keep the old ones",
                f"{_UTILS}, dynamic_frequency_update",
            )
        )
    if case.kind == "longrope":
        found.append(
            Remark(
                "the longest row of a batch chooses long or short factors for all of it",
                f"{_UTILS}, longrope_frequency_update",
            )
        )
    if case.kind == "yarn" and case.nested and "truncate" in case.parameters:
        found.append(
            Remark(
                "truncate is not read if rope parameters are nested by layer type",
                f"{_UTILS}, _compute_yarn_parameters",
            )
        )
    return found
