"""Label selectors select as Kubernetes' do."""

import argparse

import pytest

from drawbar.driver.cli import selectors

LABELS = {"app": "train", "team": "a", "example.com/tier": "1", "count": 2}


@pytest.mark.parametrize(
    ("content", "is_selected"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("other", False),
        ("app=train", True),
        ("app == train", True),
        ("app=test", False),
        ("app!=test", True),
        ("app!=train", False),
        ("other!=x", True),
        ("app in (test, train)", True),
        ("app in (test)", False),
        ("app notin (test)", True),
        ("app notin (train,test)", False),
        ("other notin (x)", True),
        ("app=train,team=b", False),
        ("app in (train,test),team=a,example.com/tier=1", True),
        ("count=2", True),
        ("other=", False),
    ],
)
def test_objects_are_selected_as_by_kubernetes(content, is_selected):
    assert selectors.matches(selectors.parse(content), LABELS) == is_selected


@pytest.mark.parametrize("content", ["=", "a=b=c", "!a=b", "a in b", "a b", "in (a)", "a,,b", "(", "-a"])
def test_other_text_is_refused_with_an_example(content):
    with pytest.raises(argparse.ArgumentTypeError, match="such as app=train"):
        selectors.parse(content)
