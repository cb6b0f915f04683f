"""Settings that are refused, and the learning rate."""

from typing import Any

import pytest

from whorl.configs import ConfigError
from whorl.finetune import FineTuning


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, r"^steps must be a whole number of at least 1; got 0\.$"),
        ({"batch": True}, r"^batch must be a whole number of at least 1; got True\.$"),
        ({"accumulation": 1.5}, r"^accumulation must be a whole number .* got 1\.5\.$"),
        ({"length": 1}, r"^length must be a whole number of at least 2; got 1\.$"),
        ({"lora": 0}, r"^lora must be a whole number of at least 1; got 0\.$"),
        ({"seed": -1}, r"^seed must be a whole number of at least 0; got -1\.$"),
        ({"factor": 1.0}, r"^factor must be .* greater than 1 and at most 1024; got 1\.0\.$"),
        ({"factor": float("nan")}, r"^factor must be .*; got nan\.$"),
        ({"clip": 0}, r"^clip must be a number greater than 0; got 0\.$"),
        ({"learning_rate": -1}, r"^learning_rate must be a number greater than 0 and at most 10"),
        ({"precision": "half"}, r"^precision must be one of float32, bfloat16; got 'half'\.$"),
        ({"attention": "flash"}, r"^attention must be one of dense, shifted-sparse; got 'flash'"),
        ({"positions": "po"}, r"^positions must be one of all, pose, random; got 'po'\.$"),
        ({"method": None}, r"^method must be the name of a method, such as yarn; got None\.$"),
        (
            {"method": "none", "positions": "pose"},
            r"^positions 'pose' needs a method that changes frequencies, .* got method 'none'\.$",
        ),
        (
            {"drop_positions": True},
            r"^drop_positions takes the rotation away, .* got method 'yarn' too\.",
        ),
        (
            {"drop_positions": True, "method": None, "positions": "pose"},
            r"^drop_positions takes .* got 'pose' too\. Leave one of them out\.$",
        ),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FineTuning(**options)


def test_an_unknown_method() -> None:
    with pytest.raises(ConfigError, match=r"^method 'yran' is unknown; did you mean 'yarn'\?"):
        FineTuning(method="yran")


def test_the_rate_rises_and_falls() -> None:
    settings = FineTuning(steps=10, warmup=2)
    shares = [settings.compute_rate_share(step) for step in range(1, 12)]
    assert shares[:2] == [0.5, 1.0]
    assert shares[2] == pytest.approx(8 / 9)
    assert shares[-1] == 0
    assert FineTuning(steps=1000).warmup_steps == 20
    assert FineTuning(steps=5).compute_rate_share(1) == pytest.approx(5 / 6)


def test_long_targets_have_fewer_windows() -> None:
    counts = [FineTuning().count_validation_windows(n) for n in (64, 16_384, 131_072)]
    assert counts == [8, 4, 1]
    assert FineTuning(validation=0).count_validation_windows(64) == 0
