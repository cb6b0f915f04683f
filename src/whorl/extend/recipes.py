"""What to write for a method, framework by framework: lines for config.json, commands to paste.

transformers 4, 5   lines for config.json, each in its dialect
vLLM                a command: --hf-overrides with rope_parameters, and --max-model-len. vLLM
                    takes the longest text from max_position_embeddings, which is in the
                    overrides too; for "linear" it multiplies that by the factor, so it is not
llama.cpp           a command with flags, or the advice to convert the written config again
mlx-lm              lines for config.json, in a dialect that the model file reads
"""

import json
import re
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whorl.configs import LayerGroup
from whorl.configs.huggingface.write import Dialect
from whorl.configs.inspection.config_writer import ConfigWriter
from whorl.scaling import Scaling

from .llama_cpp_flags import build_flags
from .support import FrameworkSupport

__all__ = ["Recipe", "RecipeInputs", "build_recipes", "format_command", "format_lines"]

_CONVERT = "write the lines into config.json and convert it again with convert_hf_to_gguf.py"
_UNCHANGED = "nothing to change: the published config claims this length"
_WIDTH, _JSON_WIDTH = 76, 59  # the latter leaves room for the flag
#: Keys of the lines that are for other readers of config.json.
_NOT_FOR_VLLM = ("transformers_version", "rope_theta", "rope_scaling")


@dataclass(frozen=True)
class Recipe:
    """What to write for one framework.

    form: "lines" for config.json, or a "command". text: None if there is nothing to write.
    note: what to know about it, or why there is nothing.
    """

    framework: str
    form: str
    text: str | None
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return vars(self).copy()


@dataclass(frozen=True)
class RecipeInputs:
    """The method that recipes are for.

    groups: the extended layers. scaling: None for the published one.
    keep: whether the published config needs no change.
    folder: where the model lies, in commands.
    """

    writer: ConfigWriter
    groups: tuple[LayerGroup, ...]
    scaling: Scaling | None
    lines: Mapping[Dialect, Mapping[str, Any] | None]
    support: tuple[FrameworkSupport, ...]
    target: int
    keep: bool = False
    folder: str = field(default="MODEL")


def build_recipes(given: RecipeInputs) -> tuple[Recipe, ...]:
    """The recipe of each framework."""
    found = []
    for each in given.support:
        form = "command" if each.framework in ("vLLM", "llama.cpp") else "lines"
        if not each.runs and not given.keep:
            words = {"unknown": "not known", "inexpressible": "cannot"}.get(each.outcome, "no")
            found.append(Recipe(each.framework, form, None, f"{words}: {each.why}"))
        elif each.framework == "vLLM":
            found.append(_write_vllm(given))
        elif each.framework == "llama.cpp":
            found.append(_write_llama_cpp(given))
        elif given.keep:
            found.append(Recipe(each.framework, form, None, _UNCHANGED))
        else:
            found.append(_write_lines(given, each))
    return tuple(found)


def format_command(words: list[str]) -> str:
    """A command for a shell, in lines that a terminal does not break.

    A flag stays beside its value. JSON is broken between its entries, where spaces have no meaning.

    >>> print(format_command(["run", "--length", "4096"]))
    run --length 4096
    """
    parts: list[str] = []
    for word in words:
        safe = shlex.quote(word)
        if word.startswith("{"):
            inner = textwrap.wrap(safe, _JSON_WIDTH, break_long_words=False, break_on_hyphens=False)
            safe = "\n    ".join(inner)
        if parts and parts[-1].startswith("-") and " " not in parts[-1]:
            parts[-1] = f"{parts[-1]} {safe}"
        else:
            parts.append(safe)
    lines = [parts[0]]
    for part in parts[1:]:
        fits = "\n" not in lines[-1] + part and len(lines[-1]) + len(part) < _WIDTH
        lines[-1:] = [f"{lines[-1]} {part}"] if fits else [lines[-1], part]
    return " \\\n  ".join(lines)


def format_lines(lines: Mapping[str, Any] | None) -> str:
    """Lines for config.json, indented; lists of numbers take few lines.

    >>> print(format_lines({"long_factor": [1.0, 4.0]}))
    {
      "long_factor": [1.0, 4.0]
    }
    """
    return re.sub(
        r"\[[-+.,\de\s]+\]",
        lambda found: textwrap.fill(
            f"[{' '.join(found[0][1:-1].split())}]", _JSON_WIDTH, subsequent_indent="      "
        ),
        json.dumps(lines, indent=2),
    )


def _write_lines(given: RecipeInputs, each: FrameworkSupport) -> Recipe:
    """Lines for config.json, in a dialect that the framework reads."""
    dialect: Dialect = each.dialects[-1] if each.framework == "transformers 5" else each.dialects[0]
    if each.framework == "mlx-lm" and given.writer.dialect in each.dialects:
        dialect = given.writer.dialect
    lines = given.writer.nest_lines(given.lines[dialect])
    note = None
    if each.framework == "transformers 4":
        note = "4.52 or later; by reading"
    return Recipe(each.framework, "lines", format_lines(lines), note)


def _write_vllm(given: RecipeInputs) -> Recipe:
    length = ["--max-model-len", str(given.target)]
    start = ["vllm", "serve", given.folder]
    if given.keep:
        return Recipe("vLLM", "command", format_command([*start, *length]), _UNCHANGED)
    lines = given.lines["transformers 5"] or {}
    chosen = {k: v for k, v in lines.items() if v is not None and k not in _NOT_FOR_VLLM}
    ropes = chosen.get("rope_parameters", {})
    model = given.writer.model
    linear = isinstance(ropes, Mapping) and ropes.get("rope_type") == "linear"
    if linear and (model.context or 0) * float(ropes["factor"]) >= given.target:
        chosen = {"rope_parameters": ropes}
    overrides = json.dumps(given.writer.nest_lines(chosen))
    command = format_command([*start, "--hf-overrides", overrides, *length])
    note = None
    if isinstance(ropes, Mapping) and "attention_factor" in ropes:
        note = "attention_factor needs vLLM 0.32.0 or later: earlier releases ignore it"
    return Recipe("vLLM", "command", command, note)


def _write_llama_cpp(given: RecipeInputs) -> Recipe:
    start = ["llama-server", "-m", "MODEL.gguf", "-c", str(given.target)]
    if given.keep:
        return Recipe("llama.cpp", "command", format_command(start), _UNCHANGED)
    flags, why = build_flags(given.writer.model, given.groups, given.scaling, given.target)
    if flags is None:
        return Recipe("llama.cpp", "command", None, f"{why}: {_CONVERT}")
    note = None
    if "--yarn-orig-ctx" in flags:
        note = "leave --yarn-attn-factor unset; builds before August 2026 limit the context"
    return Recipe("llama.cpp", "command", format_command([*start, *flags]), note)
