"""Label and field selectors, JSONPath and ages."""

from typing import Any

import pytest

from drawbar.mocks.apiserver import errors, jsonpath, selectors, tables

ITEM = {"metadata": {"name": "x", "labels": {"app": "db", "tier": "back"}}, "spec": {"nodeName": "n1"}}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("", True),
        ("app=db", True),
        ("app==db,tier=back", True),
        ("app!=db", False),
        ("other!=db", True),
        ("app in (db, web)", True),
        ("app notin (db)", False),
        ("other notin (db)", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("drawbar.dev/node=a", False),
        ("other=", False),
    ],
)
def test_label_selectors_match_as_in_kubernetes(text: Any, fits: Any) -> None:
    assert selectors.Selector(labels=selectors.parse_labels(text)).matches(ITEM) is fits


@pytest.mark.parametrize(
    "text", ["app=(", "app in db", "app in (", "app in ()", "=x", "a b", "app=a,", "app in (a b)", "!"]
)
def test_malformed_label_selectors_are_refused(text: Any) -> None:
    with pytest.raises(errors.ApiError) as caught:
        selectors.parse_labels(text)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("text", "fits"),
    [("metadata.name=x", True), ("spec.nodeName=n1,metadata.name!=y", True), ("spec.nodeName=", False)],
)
def test_field_selectors_match_declared_fields(text: Any, fits: Any) -> None:
    paths = {"metadata.name": "metadata.name", "spec.nodeName": "spec.nodeName"}
    assert selectors.Selector(fields=selectors.parse_fields(text, paths)).matches(ITEM) is fits


def test_an_undeclared_field_cannot_be_selected() -> None:
    with pytest.raises(errors.ApiError, match=r'field label not supported: "spec\.x"'):
        selectors.parse_fields("spec.x=1", {})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.nodeName", ["n1"]),
        ("{.spec.nodeName}", ["n1"]),
        (".spec.absent", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[0].type", ["Ready"]),
        (".status.conditions[*].type", ["Ready", "Other"]),
        (r".metadata.labels.drawbar\.dev/node", ["a"]),
    ],
)
def test_jsonpath_reaches_the_values_of_printer_columns(path: Any, expected: Any) -> None:
    item = {
        "metadata": {"labels": {"drawbar.dev/node": "a"}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
    }
    assert jsonpath.values(item, path) == expected


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ("2026-01-01T00:00:05Z", "5s"),
        ("2026-01-01T00:03:10Z", "3m10s"),
        ("2026-01-01T01:30:00Z", "90m"),
        ("2026-01-01T05:12:00Z", "5h12m"),
        ("2026-01-05T00:00:00Z", "4d"),
    ],
)
def test_ages_read_like_those_of_kubectl(now: Any, text: Any) -> None:
    assert tables.age("2026-01-01T00:00:00Z", now) == text
