"""The health policy: what can be configured, what cannot, and that the documentation says the same."""

import dataclasses
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import yaml

from drawbar.driver.node.health import policy, rules
from drawbar.driver.node.health.policy import Policy, Rule, Rules
from drawbar.driver.node.health.rules.rule import HealthRule
from drawbar.driver.node.health.verdicts import Effect

PAGE = Path(__file__).parents[4] / "docs" / "health.md"


def test_the_defaults_are_in_order():
    assert policy.problems(Policy()) == []


def test_each_finding_has_its_rule_and_there_is_no_other():
    names = {finding: finding.replace("-", "_") for finding in policy.NAMES}
    assert {field.name for field in dataclasses.fields(Rules)} == set(names.values())
    rule = Rule(hold_down_seconds=1.5)
    assert all(Rules(**{name: rule}).find_rule(finding) is rule for finding, name in names.items())


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"interval_seconds": 0.0}, "intervalSeconds"),
        ({"interval_seconds": float("nan")}, "intervalSeconds"),
        ({"read_timeout_seconds": 0.0}, "readTimeoutSeconds"),
        ({"arrival_seconds": -1.0}, "arrivalSeconds"),
        ({"recovery_seconds": 1e9, "recovery_max_seconds": 1e9}, "recoverySeconds"),
        ({"recovery_seconds": 600.0, "recovery_max_seconds": 300.0}, "recoveryMaxSeconds"),
        ({"fatal_per_hour": 0}, "fatalPerHour"),
        ({"nonfatal_per_hour": 0}, "nonfatalPerHour"),
        ({"correctable_per_minute": -1}, "correctablePerMinute"),
        ({"ignored": ("link-wide",)}, "link-wide"),
        ({"rules": Rules(link_slow=Rule(effect=Effect.NO_SCHEDULE, unhealthy=False))}, "link-slow"),
        ({"rules": Rules(nvme_dead=Rule(hold_down_seconds=-1.0))}, "nvme-dead"),
        ({"rules": Rules(nvme_dead=Rule(hold_down_seconds=float("inf")))}, "nvme-dead"),
    ],
)
def test_a_value_that_cannot_be_is_a_sentence_that_names_it(changes, names):
    problems = policy.problems(dataclasses.replace(Policy(), **changes))
    assert problems
    assert names in problems[0]


def test_all_problems_are_listed_at_once():
    wrong = Policy(
        interval_seconds=0.0, ignored=("a", "b"), rules=Rules(cxl_locked=Rule(hold_down_seconds=-1.0))
    )
    assert len(policy.problems(wrong)) == 4


# The documentation.


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def test_the_example_of_settings_has_only_settings():
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    section = yaml.safe_load(example)["health"]
    assert section.keys() <= {camel(field.name) for field in dataclasses.fields(Policy)}
    assert section["rules"].keys() <= {camel(field.name) for field in dataclasses.fields(Rules)}
    assert set(section["ignored"]) <= set(policy.NAMES)


@pytest.mark.parametrize("left_out", ["name", "meaning", "default", "find"])
def test_a_rule_without_a_required_field_is_refused(left_out):
    fields = {"name": "too-warm", "meaning": "too warm", "default": Rule(), "find": lambda look: None}
    HealthRule(**fields)
    with pytest.raises(TypeError, match=left_out):
        HealthRule(**{name: value for name, value in fields.items() if name != left_out})


@pytest.mark.parametrize("name", ["", "Too-Warm", "too_warm", "-warm"])
def test_a_rule_with_a_name_that_no_taint_can_have_is_refused_where_it_is_made(name):
    with pytest.raises(ValueError, match="lower case"):
        HealthRule(name=name, meaning="too warm", default=Rule(), find=lambda look: None)


def test_every_rule_of_the_folder_is_registered():
    modules = [
        importlib.import_module(f"{rules.__name__}.{module.name}")
        for module in pkgutil.iter_modules(rules.__path__)
    ]
    made = {
        id(value) for module in modules for value in vars(module).values() if isinstance(value, HealthRule)
    }
    assert made == {id(rule) for rule in policy.RULES}
