"""Checks of what an encoding is: its options, its copies, and what it keeps beside parameters."""

import copy
import dataclasses
import json
import pickle

import torch

import whorl
from whorl.encodings import Encoding

from ._compare import construct, rebuild, registered, same
from .probe import Probe, observe, randomized

__all__ = ["config_round_trip", "constants", "pickle_round_trip", "repr_round_trip", "state_dict"]


def config_round_trip(encoding: Encoding) -> None:
    """Options survive JSON, cannot be changed, and unknown ones are refused."""
    options = json.loads(json.dumps(encoding.to_dict()))
    again = rebuild(encoding, options)
    assert again.config == encoding.config, f"{again.config} came back for {encoding.config}"
    for field in dataclasses.fields(encoding.config):
        try:
            setattr(encoding.config, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"config.{field.name} can be changed; use a frozen dataclass")
    # Refused as a whole only where from_dict knows all parts.
    whole = [encoding] if len(encoding.parts) > 1 and registered(options) else []
    for one in (*encoding.parts, *whole):
        try:
            rebuild(one, {**one.to_dict(), "no_such_option": 1})
        except TypeError:
            continue
        raise AssertionError(f"an unknown option was accepted by {one!r}")


def repr_round_trip(encoding: Encoding) -> None:
    """The repr is an expression that builds an equal encoding."""
    known = {type(part).__name__: type(part) for part in encoding.parts}
    again = eval(repr(encoding), {**vars(whorl), **known})
    assert again.config == encoding.config, f"{again!r} came back for {encoding!r}"


def pickle_round_trip(encoding: Encoding) -> None:
    """Pickling and deep copies keep configuration, parameters and results."""
    probe = Probe.of(encoding)
    for again in (pickle.loads(pickle.dumps(encoding)), copy.deepcopy(encoding)):
        assert again.config == encoding.config, f"config became {again.config}"
        same(observe(again, probe), observe(encoding, probe), "the copy differs")


def state_dict(encoding: Encoding) -> None:
    """state_dict holds trained parameters and nothing else."""
    saved, trained = set(encoding.state_dict()), {n for n, _ in encoding.named_parameters()}
    assert saved == trained, f"state_dict has {sorted(saved - trained)} beside the parameters"


def constants(encoding: Encoding) -> None:
    """Constants survive .half(), .bfloat16(), .double() and meta device + to_empty."""
    randomized(encoding)
    probe = Probe.of(encoding)
    expected = observe(encoding, probe)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        cast = copy.deepcopy(encoding).to(dtype)
        got = {n: t.to(expected[n].dtype) for n, t in observe(cast, probe).items()}
        same(got, expected, f"results change after .to({dtype})", tolerance=1e-6)
    with torch.device("meta"):
        hollow = construct(encoding)
    shapes = observe(hollow, probe.map(lambda t: t.to("meta")))
    for name, tensor in shapes.items():
        assert tensor.shape == expected[name].shape, f"{name} has another shape on meta"
    filled = hollow.to_empty(device="cpu")
    filled.load_state_dict(encoding.state_dict())
    same(observe(filled, probe), expected, "results differ after meta device and to_empty")
