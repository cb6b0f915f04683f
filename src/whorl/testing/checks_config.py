"""Checks of the options of an encoding, its copies, its state_dict and its constants."""

import copy
import dataclasses
import json
import pickle

import torch

import whorl
from whorl.encodings import Encoding

from ._compare import build_copy, build_from_dict, check_equal, is_registered
from .inputs import EncodingInputs, run_hooks, set_random_parameters

__all__ = [
    "check_config_round_trip",
    "check_constants",
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


def check_constants(encoding: Encoding) -> None:
    """Constants survive .half(), .bfloat16(), .double() and meta device + to_empty."""
    set_random_parameters(encoding)
    inputs = EncodingInputs.of(encoding)
    expected = run_hooks(encoding, inputs)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        cast = copy.deepcopy(encoding).to(dtype)
        got = {n: t.to(expected[n].dtype) for n, t in run_hooks(cast, inputs).items()}
        check_equal(got, expected, f"results change after .to({dtype})", tolerance=1e-6)
    with torch.device("meta"):
        empty = build_copy(encoding)
    results = run_hooks(empty, inputs.map(lambda t: t.to("meta")))
    for name, tensor in results.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape on meta"
    filled = empty.to_empty(device="cpu")
    filled.load_state_dict(encoding.state_dict())
    check_equal(
        run_hooks(filled, inputs), expected, "results differ after meta device and to_empty"
    )
