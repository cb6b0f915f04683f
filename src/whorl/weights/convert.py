"""Write a checkpoint again in the other layout: the same numbers, rows of q and k in another order.

Of each moving tensor one head is in memory at a time, of all others a few megabytes. Nothing is
computed, so nothing is rounded; the header of a file with moved tensors says the layout (mark.py).

    source/  config.json  model.safetensors  tokenizer.json ...
    out/     the same; config.json says the layout (docs/convert.md says who reads that)

Touvron et al. 2023, Llama, https://arxiv.org/abs/2302.13971 came in the interleaved layout;
transformers moves its rows to "half" in the same way when it takes Meta's weights over.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from whorl._support.files import create_folder_atomically
from whorl._support.words import quote
from whorl.configs import read_config
from whorl.types import Layout

from .completeness import check_key_heads, check_known, check_layers, check_pairs
from .config_file import is_ignored_by_transformers, write_layout
from .detect import Detection, detect_layers
from .layers import group_layers
from .layout_checks import ConvertCommand, check_source, describe_conflict, detect_output
from .layout_mark import add_mark
from .output import check_free, check_room, write_file
from .plan import RowMove, plan_moves, stream_converted
from .safetensors_file import FileHeader, open_regular, read_range
from .shards import WeightFiles, open_weight_files
from .sizes import Stated, check_stated, find_key_sharing, find_sizes
from .tensor_names import SAY_PATTERN, Pattern, parse_patterns
from .verify import Verdict, verify

__all__ = ["Conversion", "convert"]

#: A function of bytes done, bytes in all and what is being done.
Progress = Callable[[int, int, str], None]

_WEIGHTS = (
    *(".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf", ".onnx", ".h5"),
    *(".msgpack", ".npz", ".index.json"),
)


@dataclass(frozen=True)
class Conversion:
    """What was done.

    tensors: names of those whose rows moved. left_out: files of the source that are not in the
    output: other weights, folders, links to elsewhere. found: what the detector said of the
    source. notes: what to know before the output is used.
    """

    source: Path
    out: Path
    to: Layout
    tensors: tuple[str, ...]
    bytes: int
    left_out: tuple[str, ...]
    found: Detection
    check: Verdict | None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "out": str(self.out),
            "to": self.to,
            "tensors": list(self.tensors),
            "bytes": self.bytes,
            "left_out": list(self.left_out),
            "found": self.found.to_dict(),
            "check": None if self.check is None else asdict(self.check),
            "notes": list(self.notes),
        }


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: Layout,
    patterns: Sequence[Pattern | str] = (),
    stated: Stated | None = None,
    check: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Convert the safetensors of ``source`` to the layout ``to``, in a new folder ``out``.

    Args:
        source: a .safetensors file, an index, or a folder with one of them; it is only read.
        out: a folder that does not exist yet. It appears when it is complete.
        to: the layout that the output shall have.
        patterns: names of q and k that are not known here, as "ROLE=REGEX".
        stated: sizes that win over config.json, or stand in for it.
        check: also convert the output back and compare every byte, compare attention scores, and
            hold what the detector says of the output against ``to``.
        force: convert although the source seems to have that layout already or several, has the
            weights of q without those of k, or lacks layers.

    Raises:
        ValueError: the source cannot be read or converted, or ``out`` is not free.
        OSError: ``out`` cannot be written; nothing is left there.
    """
    if to not in ("half", "interleaved"):
        raise ValueError(f"convert: to must be 'half' or 'interleaved'; got {quote(to)}.")
    known, sizes = parse_patterns(patterns), check_stated(stated)
    checkpoint = open_weight_files(source)
    target = check_free(Path(out), checkpoint.path)
    moves = _plan_moves(checkpoint, sizes, known)
    found = detect_layers(group_layers(moves))
    if not force:
        _check_whole(checkpoint, moves)
        command = ConvertCommand(Path(source), Path(out), to, tuple(known), sizes)
        check_source(checkpoint, moves, found, command)
    copied, left_out = _list_other_files(checkpoint)
    check_room(target, checkpoint.size + sum(path.stat().st_size for path in copied))
    meter = _ByteCounter(progress, checkpoint.size * (2 if check else 1))
    with create_folder_atomically(target) as part:
        _write(checkpoint, part, copied, moves, to, meter)
        count = partial(meter.count, label="checking")
        verdict = verify(checkpoint, part, moves, to, count) if check else None
        notes = _list_notes(checkpoint, moves, part, to)
        if verdict is not None:
            shows = detect_output(checkpoint, part, sizes, known)
            conflicts = _check_evidence(found, shows, to, force)
            layout = None if conflicts else shows.layout
            verdict = replace(verdict, layout=layout, confidence=shows.confidence)
            notes += conflicts
    names = tuple(move.entry.name for move in moves)
    where = Path(source), Path(out)
    return Conversion(*where, to, names, checkpoint.size, left_out, found, verdict, notes)


def _check_evidence(
    before: Detection, shows: Detection, to: Layout, force: bool
) -> tuple[str, ...]:
    """What the output shows against ``to``: an error, or a note where the caller insists."""
    conflict = describe_conflict(before, shows, to)
    if conflict is None or force:
        return () if conflict is None else (conflict,)
    raise ValueError(
        f"convert: {conflict}; nothing was kept. Correct the patterns or sizes that were stated, or"
        " pass force=True (--force) to keep it all the same."
    )


def _write(
    checkpoint: WeightFiles,
    part: Path,
    copied: Sequence[Path],
    moves: Sequence[RowMove],
    to: Layout,
    meter: "_ByteCounter",
) -> None:
    """Fill a new folder; other files come first, as a config may have no word for the layout."""
    for path in copied:
        write_file(part / path.name, _stream_contents(path, to))
    for header in checkpoint.files:
        write_file(part / header.path.name, _stream_weights(header, moves, to, meter))


def _plan_moves(
    checkpoint: WeightFiles, stated: Stated, patterns: Sequence[Pattern]
) -> list[RowMove]:
    """All that moves, or a ValueError if there is nothing, or something that is not known."""
    sizes = find_sizes(checkpoint.config, stated)
    moves = plan_moves(checkpoint, sizes, patterns)
    check_known(checkpoint, sizes, moves, patterns)
    check_key_heads(moves, sizes)
    if not any(head.moves for move in moves for head in move.heads):
        raise ValueError(
            f"convert: {str(checkpoint.path)!r} holds no q or k that the layout would change, in"
            " layers that rotate by its config. If they have names of their own,"
            f" {SAY_PATTERN} q=REGEX and k=REGEX."
        )
    return moves


def _check_whole(checkpoint: WeightFiles, moves: Sequence[RowMove]) -> None:
    check_pairs(moves, find_key_sharing(checkpoint.config))
    if checkpoint.config is not None:
        check_layers(checkpoint, read_config(checkpoint.config).num_layers)


def _list_notes(
    checkpoint: WeightFiles, moves: Sequence[RowMove], part: Path, to: Layout
) -> tuple[str, ...]:
    if checkpoint.config is None:
        rows = max(head.rows for move in moves for head in move.heads)
        return (
            f"that heads have {rows} channels is as stated; there is no config.json, and nothing in"
            " the weights could show that it is not so",
        )
    if is_ignored_by_transformers(part / checkpoint.config.name):
        return (
            "transformers does not read the key for the layout (rope_traditional): it would rotate"
            f" these weights in the other layout, wrongly and without a complaint. Use them with"
            f" code that rotates in the {to} layout",
        )
    return ()


def _stream_weights(
    header: FileHeader, moves: Sequence[RowMove], to: Layout, meter: "_ByteCounter"
) -> Iterator[bytes]:
    """A file of weights: its header, marked if anything in it moves, and its tensors."""
    if any(move.header is header for move in moves):
        yield add_mark(header, to)
    else:
        with open_regular(header.path) as file:
            yield from read_range(file, 0, header.data_begin)
    yield from meter.count(stream_converted(header, moves, to), header.path.name)


def _list_other_files(checkpoint: WeightFiles) -> tuple[list[Path], tuple[str, ...]]:
    """Files to copy, and the names of those that are not."""
    done = {header.path.name for header in checkpoint.files}
    if checkpoint.path.is_file() and checkpoint.index is None and checkpoint.config is None:
        return [], ()
    copied, left_out = [], []
    for path in sorted(checkpoint.folder.iterdir()):
        if path.name in done or path.name.startswith("."):
            continue
        taken = path.is_file() and not path.name.endswith(_WEIGHTS) and _is_inside(path)
        if taken or path in (checkpoint.index, checkpoint.config):
            copied.append(path)
        else:
            left_out.append(path.name)
    return copied, tuple(left_out)


def _is_inside(path: Path) -> bool:
    """Whether a file is no link to somewhere else: its contents would be given away with the rest.

    In the cache of Hugging Face's hub all files of a snapshot are links to ../../blobs.
    """
    home = path.parent.resolve()
    return path.resolve().parent in (home, home.parent.parent / "blobs")


def _stream_contents(path: Path, to: Layout) -> Iterator[bytes]:
    """A file as it was; config.json with the layout."""
    if path.name == "config.json":
        yield write_layout(path, to)
        return
    with open_regular(path) as file:
        yield from read_range(file, 0, path.stat().st_size)


class _ByteCounter:
    """Counts the bytes that pass."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def count(self, pieces: Iterator[bytes], label: str) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self.done += len(piece)
            if self.progress is not None:
                self.progress(self.done, self.total, label)
