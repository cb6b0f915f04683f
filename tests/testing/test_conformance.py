"""The conformance suite fails where it should, and only there."""

from typing import ClassVar

import pytest

import whorl
from whorl.testing import EncodingInputs, check_encoding, list_checks, run_hooks
from whorl.testing.results import get_expected_shapes

from .broken import BROKEN
from .sound import SOUND, ThirdParty

CASES = [(check, encoding) for check, many in BROKEN.items() for encoding in many]


def test_every_check_has_a_broken_encoding() -> None:
    assert BROKEN.keys() == list_checks().keys()


@pytest.mark.parametrize(("check", "encoding"), CASES, ids=[type(e).__name__ for _, e in CASES])
def test_broken_encoding_fails_its_check_and_no_other(check: str, encoding: whorl.Encoding) -> None:
    failed = {r.check: r.message for r in check_encoding(encoding, raises=False) if not r.passed}
    assert set(failed) == {check}, failed


def test_failures_are_raised_together_and_named() -> None:
    with pytest.raises(AssertionError, match=r"(?s)fails 1 of 2 checks:.*permutation: .*equivari"):
        check_encoding(BROKEN["permutation"][0], only=("empty", "permutation"))


@pytest.mark.parametrize("encoding", SOUND, ids=repr)
def test_sound_encodings_pass_unregistered(encoding: whorl.Encoding) -> None:
    assert all(r.passed and not r.exempt for r in check_encoding(encoding))


def test_sound_encodings_act_at_every_hook() -> None:
    seen = set[str]().union(
        *(run_hooks(encoding, EncodingInputs.of(encoding)) for encoding in SOUND)
    )
    assert seen == set(get_expected_shapes(EncodingInputs.of(whorl.NoPE())))


def test_exemptions_carry_their_reason() -> None:
    class Excused(ThirdParty):
        exempt: ClassVar = {"gradients": "integer arithmetic has none"}

    (result,) = check_encoding(Excused(32), only=("gradients",))
    assert result.passed
    assert result.exempt
    assert result.message == "integer arithmetic has none"


def test_unknown_checks_and_wrong_objects_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown check 'speling'; known: config_round_trip"):
        check_encoding(whorl.RoPE(16), only=("speling",))
    with pytest.raises(TypeError, match=r"must be an instance of a whorl\.Encoding subclass"):
        check_encoding(whorl.RoPE)  # type: ignore[arg-type]
