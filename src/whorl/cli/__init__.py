"""The ``whorl`` command; it needs the ``cli`` extra and says so where that is missing."""

import sys

from whorl._support.launch import is_main_process

__all__ = ["INTERRUPTED", "main"]

INTERRUPTED = 130


def main(args: list[str] | None = None) -> int:
    """Run the command with ``args`` (those of the process by default); return its exit code.

    0 done, 1 an optional part is missing, 2 bad input, 130 interrupted. Any other exception is a
    mistake of ours and shows its traceback.
    """
    try:
        code = _run(args)
    except KeyboardInterrupt:  # imports take a second or two: it may well come during them
        code = INTERRUPTED
    if code == INTERRUPTED:
        _say("interrupted.")
    return code if isinstance(code, int) else 0


def _run(args: list[str] | None) -> object:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError:
        _say("the whorl command needs typer and rich: pip install 'whorl[cli]'.")
        return 1
    try:
        from .app import app

        return app(args, prog_name="whorl")
    except SystemExit as done:
        return done.code
    except ModuleNotFoundError as error:  # an extra that this command needs
        _say(str(error))
        return 1
    except (ValueError, OSError) as error:  # what whorl raises for bad input
        from whorl._support.words import escape_controls

        words = "\n".join(map(escape_controls, f"error: {error}".split("\n")))
        _say(words, always=not getattr(error, "is_reported", True))
        return 2


def _say(line: str, *, always: bool = False) -> None:
    if always or is_main_process():  # of several, the others leave their reasons to the first
        print(line, file=sys.stderr)
