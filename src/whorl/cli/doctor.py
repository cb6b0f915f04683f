"""``whorl doctor``: what is wrong with a model's rotary config, and a corrected one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from whorl._support.extras import import_extra
from whorl._support.words import quote

from ._diagnosis import Correction, print_diagnosis, print_rule, print_rules
from ._options import make_length_option, split_words
from ._output import JsonFlag, print_json

if TYPE_CHECKING:
    from whorl.configs.diagnosis import ConfigDiagnosis
    from whorl.hf import LiveDiagnosis

__all__ = ["FAILED", "doctor"]

FAILED = 3

Model = typer.Argument(
    metavar="MODEL",
    help="config.json, a checkpoint's folder, a .safetensors or .gguf file, a preset, or a model in"
    " the local Hugging Face cache, such as Qwen/Qwen3-8B.",
)
Length = make_length_option("Tokens that the model is to be used with (default: its own context).")
Fix = typer.Option("--fix", help="Write a corrected config beside the original, and show the diff.")
Force = typer.Option("--force", help="With --fix: overwrite an earlier corrected config.")
Ignore = typer.Option(metavar="ID,ID", help="Rules to leave out.")
Strict = typer.Option("--strict", help="Fail for warnings too (for CI).")
List = typer.Option("--list", help="Print one line for each rule, and stop.")
Live = typer.Option(
    "--live", help="Also load the folder with transformers, and compare what it rotates by."
)
Explain = typer.Option(metavar="ID", help="Explain one rule, and stop.")


def doctor(
    target: Annotated[str | None, Model] = None,
    length: Annotated[int | None, Length] = None,
    fix_it: Annotated[bool, Fix] = False,
    force: Annotated[bool, Force] = False,
    ignore: Annotated[str | None, Ignore] = None,
    strict: Annotated[bool, Strict] = False,
    live: Annotated[bool, Live] = False,
    list_rules: Annotated[bool, List] = False,
    explain: Annotated[str | None, Explain] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is wrong with the rotary config of a model.

    Exit code 0 if there are no errors (with --strict, no warnings either), 3 if there are, and 2
    if the config could not be diagnosed.
    """
    if list_rules or explain is not None:
        _print_rules(explain, as_json)
        return
    if target is None:
        raise ValueError("doctor: name a config.json, a folder, a file or a preset; see --help.")
    if force and not fix_it:
        raise ValueError("--force lets --fix overwrite a file; add --fix.")
    from whorl.configs import diagnosis

    found = diagnosis.diagnose(target, length=length, ignore=split_words(ignore) or ())
    fixed = _fix(found, force) if fix_it else None
    loaded = _diagnose_live(target) if live else None
    if as_json:
        more = {} if fixed is None else fixed.to_dict()
        more |= {} if loaded is None else {"live": loaded.to_dict()}
        print_json({**found.to_dict(), **more})
    else:
        print_diagnosis(target, found, fixed)
        if loaded is not None:
            print(f"\nLoaded by transformers: {loaded}")
    if found.fails(strict=strict) or (loaded and (loaded.findings if strict else loaded.errors)):
        raise typer.Exit(FAILED)


def _diagnose_live(target: str) -> LiveDiagnosis:
    """What is wrong with the model that transformers loads from a folder on this machine."""
    from whorl.configs.names import resolve_model

    folder = resolve_model(target, "--live")
    if not folder.is_dir():
        raise ValueError(f"--live: {quote(target)} must be a folder with config.json and weights.")
    transformers = import_extra("transformers", by="whorl doctor --live", extra="hf")
    from whorl import hf

    return hf.diagnose(transformers.AutoModel.from_pretrained(folder, local_files_only=True))


def _print_rules(explain: str | None, as_json: bool) -> None:
    from whorl.configs import diagnosis

    chosen = list(diagnosis.RULES.values()) if explain is None else [diagnosis.find_rule(explain)]
    if as_json:
        print_json([rule.to_dict() for rule in chosen])
    elif explain is None:
        print_rules(chosen)
    else:
        print_rule(chosen[0])


def _fix(found: ConfigDiagnosis, force: bool) -> Correction:
    """Write the corrected config, if there is something to correct, and diagnose it again."""
    from whorl.configs import diagnosis
    from whorl.configs.hub_cache import get_repository

    remaining = found.correct()
    if found.path is None:
        return Correction(None, "", remaining)
    if get_repository(found.path) is not None:
        raise ValueError(
            f"--fix: {found.path} is in the cache of Hugging Face, which other programs read too;"
            " copy it, and run this on the copy."
        )
    path = diagnosis.fix.get_fixed_path(found.path)
    changes = diagnosis.fix.format_diff(
        found.config, remaining.config, (found.path.name, path.name)
    )
    if not changes:
        return Correction(None, "", remaining)
    diagnosis.fix.write_config(path, remaining.config, force=force)
    return Correction(path, changes, remaining)
