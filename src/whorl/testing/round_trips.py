"""Checks of what is saved: an encoding comes back from its options, repr, pickle and state_dict."""

import copy
import dataclasses
import json
import pickle
from typing import Any

import whorl
from whorl.encodings import Composition, Encoding, from_dict, names

from .inputs import EncodingInputs, run_hooks
from .results import check_equal

__all__ = [
    "build_copy",
    "check_config_round_trip",
    "check_pickle_round_trip",
    "check_repr_round_trip",
    "check_state_dict",
]


def check_config_round_trip(encoding: Encoding) -> None:
    """Options survive JSON, cannot be changed, and unknown ones are refused."""
    options = json.loads(json.dumps(encoding.to_dict()))
    again = build_from_dict(encoding, options)
    assert again.config == encoding.config, f"{again.config} came back for {encoding.config}"
    for field in dataclasses.fields(encoding.config):
        try:
            setattr(encoding.config, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"config.{field.name} can be changed; use a frozen dataclass")
    # A composition can refuse an option itself only if from_dict knows all its parts.
    whole = [encoding] if len(encoding.parts) > 1 and is_registered(options) else []
    for one in (*encoding.parts, *whole):
        try:
            build_from_dict(one, {**one.to_dict(), "no_such_option": 1})
        except TypeError:
            continue
        raise AssertionError(f"an unknown option was accepted by {one!r}")


def check_repr_round_trip(encoding: Encoding) -> None:
    """The repr is an expression that builds an equal encoding."""
    known = {type(part).__name__: type(part) for part in encoding.parts}
    again = eval(repr(encoding), {**vars(whorl), **known})
    assert again.config == encoding.config, f"{again!r} came back for {encoding!r}"


def check_pickle_round_trip(encoding: Encoding) -> None:
    """Pickling and deep copies keep configuration, parameters and results."""
    inputs = EncodingInputs.of(encoding)
    for again in (pickle.loads(pickle.dumps(encoding)), copy.deepcopy(encoding)):
        assert again.config == encoding.config, f"config became {again.config}"
        check_equal(run_hooks(again, inputs), run_hooks(encoding, inputs), "the copy differs")


def check_state_dict(encoding: Encoding) -> None:
    """state_dict holds trained parameters and nothing else."""
    saved, trained = set(encoding.state_dict()), {n for n, _ in encoding.named_parameters()}
    assert saved == trained, f"state_dict has {sorted(saved - trained)} beside the parameters"


def is_registered(options: dict[str, Any]) -> bool:
    """Whether ``from_dict`` knows the encoding of these options, and all parts of a composition."""
    if options.get("name") == Composition.name:
        return all(map(is_registered, options.get("parts", ())))
    return options.get("name") in names()


def build_from_dict(encoding: Encoding, options: dict[str, Any]) -> Encoding:
    """An encoding from options of ``to_dict``, by the registry, or by its class if unregistered."""
    if is_registered(options):
        return from_dict(options)
    if isinstance(encoding, Composition):
        parts = zip(encoding.parts, options["parts"], strict=True)
        return Composition(*(build_from_dict(part, own) for part, own in parts))
    rest = {key: value for key, value in options.items() if key != "name"}
    return type(encoding)(**rest)


def build_copy(encoding: Encoding) -> Encoding:
    """A new instance from the same options, without ``to_dict``, which has its own check."""
    if isinstance(encoding, Composition):
        return Composition(*map(build_copy, encoding.parts))
    options = {
        f.name: getattr(encoding.config, f.name) for f in dataclasses.fields(encoding.config)
    }
    return type(encoding)(**options)
