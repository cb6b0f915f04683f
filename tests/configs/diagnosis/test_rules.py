"""Every rule finds its example and lets the near miss pass; the page has all of them."""

import re
from pathlib import Path

import pytest

from tests.configs.diagnosis.examples import diagnose_example
from whorl.configs import diagnosis
from whorl.configs.diagnosis import RULES, SEVERITIES, DiagnosisRule, page
from whorl.configs.diagnosis.engine import RuleExample

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"
EVERY = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


@EVERY
def test_the_trigger_is_found(rule: DiagnosisRule, tmp_path: Path) -> None:
    found = [f for f in diagnose_example(rule.trigger, tmp_path).findings if f.rule == rule.id]
    assert found
    assert {(f.severity, f.failed) for f in found} == {(rule.severity, False)}
    assert all(f.message.endswith((".", "?")) and f.remedy for f in found)


@EVERY
def test_the_near_miss_is_not(rule: DiagnosisRule, tmp_path: Path) -> None:
    found = diagnose_example(rule.near_miss, tmp_path)
    assert rule.id not in {f.rule for f in found.findings}
    assert not any(f.failed for f in found.findings)
    assert found.errors == ()  # an example of something right must be right
    assert found.reading is not None


@EVERY
def test_ignored_it_says_nothing(rule: DiagnosisRule, tmp_path: Path) -> None:
    found = diagnose_example(rule.trigger, tmp_path, ignore=[rule.id])
    assert rule.id not in {f.rule for f in found.findings}


@EVERY
def test_what_it_says_is_complete(rule: DiagnosisRule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.severity in SEVERITIES
    assert all(text.endswith((".", "?")) for text in (rule.what, rule.why, rule.remedy))
    assert rule.seen
    assert all(re.fullmatch(r"https://\S+", link) for link in rule.seen)
    assert repr(rule.trigger) != repr(rule.near_miss)
    assert rule.to_dict()["docs"] == f"docs/doctor.md#{rule.id}"


def test_the_readme_counts_them() -> None:
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"doctor\.md\): (\d+) rules", readme)
    assert int(said) == len(RULES)


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    inside = text.split("<!-- rules -->\n")[1].split("\n<!-- /rules -->")[0]
    assert inside == page.render_rules(), "run scripts/doctor-page"


def test_the_page_has_a_section_for_each_rule() -> None:
    sections = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(RULES)


def test_the_worst_comes_first() -> None:
    found = diagnosis.diagnose(
        {**RULES["theta-inside-only"].trigger.config, "rope_scaling": {"factor": 4.0}}, length=10**6
    )
    order = [SEVERITIES.index(f.severity) for f in found.findings]
    assert order == sorted(order)
    assert len(set(order)) == 3


def test_an_unreadable_config_needs_no_line_where_another_error_says_why() -> None:
    config = RULES["unknown-type"].trigger.config
    assert [f.rule for f in diagnosis.diagnose(config).errors] == ["unknown-type"]
    alone = diagnosis.diagnose(config, ignore=["unknown-type"])
    assert [f.rule for f in alone.errors] == ["unreadable"]
    assert alone.reading is None
    assert "'yarm' is not known" in alone.errors[0].message


def test_an_example_reads_as_one_writes_it() -> None:
    case = RuleExample({"a": [1.0] * 64}, length=8, stored={"x.inv_freq": ("F32", ())})
    assert str(case) == '{"a": [1.0, 1.0, …, 1.0]}, --length 8, x.inv_freq stored as F32'


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match=r"no rule is called 'lone-facto'; did you mean 'lone-fac"):
        diagnosis.diagnose({}, ignore=["lone-facto"])
    with pytest.raises(ValueError, match=r"length must be a positive int, in tokens; got"):
        diagnosis.diagnose({}, length=0)
    with pytest.raises(
        ValueError, match=r"x must be a path, a dict or a config object of transformers"
    ):
        diagnosis.diagnose(7)
