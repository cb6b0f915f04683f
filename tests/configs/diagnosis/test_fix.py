"""--fix: what it changes, that the finding is gone, and how the file is written."""

import json
from pathlib import Path

import pytest

from whorl.configs import diagnosis
from whorl.configs.diagnosis import RULES, fix
from whorl.configs.diagnosis.engine import Edit

FIXABLE = [
    "attention-factor-whole",
    "factor-missing",
    "head-dim-null",
    "head-dim-refused",
    "misspelt-key",
    "not-a-boolean",
    "not-an-integer",
    "old-type-key",
    "quoted-number",
    "su-original",
    "truncate-nested",
    "unknown-key",
    "unknown-type",
]


@pytest.mark.slow
def test_which_are_fixable() -> None:
    found = {
        finding.rule
        for rule in RULES.values()
        for finding in diagnosis.diagnose(rule.trigger.config, length=rule.trigger.length).findings
        if finding.fixable
    }
    assert sorted(found) == FIXABLE


@pytest.mark.parametrize("name", FIXABLE)
def test_the_fixed_config_has_the_finding_no_more(name: str) -> None:
    case = RULES[name].trigger
    before = diagnosis.diagnose(case.config)
    fixed = before.fixed()
    after = diagnosis.diagnose(fixed)
    assert before.config == case.config
    assert repr(fixed) != repr(case.config)  # 1 is 1.0 to ==, not to transformers
    assert name not in {f.rule for f in after.findings}
    assert after.fixed() == fixed  # nothing is left to do
    assert after.errors == ()
    assert after.reading is not None


@pytest.mark.slow
def test_what_is_right_stays_as_it_is() -> None:
    for rule in RULES.values():
        found = diagnosis.diagnose(rule.near_miss.config, length=rule.near_miss.length)
        assert found.fixed() == rule.near_miss.config


def test_two_meanings_are_left_to_people() -> None:
    config = RULES["unknown-key"].near_miss.config
    config["rope_scaling"] = {**config["rope_scaling"], "attn_factor": 0.878}
    found = diagnosis.diagnose(config)
    assert "vLLM reads attn_factor, transformers does not" in found.warnings[0].message
    assert found.fixed() == config


def test_edits_keep_the_order_of_keys() -> None:
    data = {"a": {"x": 1, "y": 2, "z": 3}, "b": 4}
    edits = [
        Edit("rename", ("a", "x"), "w"),
        Edit("set", ("a", "y"), 5),
        Edit("remove", ("b",)),
        Edit("set", ("c",), 6),
    ]
    assert json.dumps(fix.apply_edits(data, edits)) == '{"a": {"w": 1, "y": 5, "z": 3}, "c": 6}'
    assert data == {"a": {"x": 1, "y": 2, "z": 3}, "b": 4}


def test_one_edit_for_a_key() -> None:
    config = {**RULES["attention-factor-whole"].trigger.config}
    found = diagnosis.diagnose(config).findings
    assert len(fix.collect_edits([*found, *found])) == len(fix.collect_edits(found)) == 1


def test_the_file_is_written_beside_and_never_over(tmp_path: Path) -> None:
    path = fix.get_fixed_path(tmp_path / "config.json")
    assert path.name == "config.fixed.json"
    fix.write_config(path, {"a": 1.0, "ü": None})
    assert path.read_text(encoding="utf-8") == '{\n  "a": 1.0,\n  "ü": null\n}\n'
    with pytest.raises(ValueError, match=r"config.fixed.json' exists already; overwrite it"):
        fix.write_config(path, {})
    fix.write_config(path, {}, force=True)
    assert path.read_text(encoding="utf-8") == "{}\n"
    assert [p.name for p in tmp_path.iterdir()] == ["config.fixed.json"]


def test_the_difference() -> None:
    assert fix.format_diff({"a": 1}, {"a": 2}, ("x", "y")).splitlines() == [
        "--- x",
        "+++ y",
        "@@ -1,3 +1,3 @@",
        " {",
        '-  "a": 1',
        '+  "a": 2',
        " }",
    ]


VERSION_4 = {
    **RULES["theta-inside-only"].trigger.config,
    "transformers_version": "4.51.0",
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 500000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    },
    "max_position_embeddings": 16384,
}


def test_a_config_of_version_4_in_the_words_of_5_is_rewritten() -> None:
    found = diagnosis.diagnose(VERSION_4)
    (finding,) = found.findings
    assert (finding.rule, finding.severity) == ("theta-inside-only", "warning")
    assert "does not find rope_theta 500000 and the yarn scaling" in finding.message
    fixed = found.fixed()
    assert "rope_parameters" not in fixed
    assert fixed["rope_theta"] == 500000.0
    assert fixed["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    }
    after = diagnosis.diagnose(fixed)
    assert after.findings == ()
    assert found.reading is not None
    assert after.reading is not None
    assert after.reading.groups == found.reading.groups  # nothing is lost in version 5 either


@pytest.mark.parametrize(("version", "severity"), [("5.1.0", "note"), (None, "warning")])
def test_who_the_config_is_for_decides_how_bad_a_loss_is(
    version: str | None, severity: str
) -> None:
    (finding,) = diagnosis.diagnose({**VERSION_4, "transformers_version": version}).findings
    assert (finding.rule, finding.severity, finding.fixable) == (
        "theta-inside-only",
        severity,
        False,
    )


def test_a_renamed_key_replaces_a_null() -> None:
    data = {"rope_theta": None, "rope_thta": 5e5, "hidden_size": 64}
    fixed = fix.apply_edits(data, [Edit("rename", ("rope_thta",), "rope_theta")])
    assert list(fixed.items()) == [("rope_theta", 5e5), ("hidden_size", 64)]
