"""The needs of the contract suite's tests, and the features of a target that meet them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract import capabilities, features, targets

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("profile", "needs", "missing"),
    [
        ("1.36", ["v1", "taints", "bindingConditions", "since 1.36"], []),
        ("1.36", ["taint rules", "no listAttributes"], ["taint rules"]),
        ("1.36", ["before 1.36", "classic", "cluster"], ["before 1.36", "classic", "cluster"]),
        ("1.34", ["no taints", "no bindingConditions"], []),
        ("1.34", ["no listAttributes"], ["no listAttributes"]),
        ("1.37", ["scheduled taint rules"], []),
        ("1.37", ["unscheduled taint rules", "taint slices"], ["unscheduled taint rules", "taint slices"]),
        ("kep-5055", ["taint slices", "scheduled taint rules"], []),
        ("kep-5055", ["taints", "no taints"], ["taints", "no taints"]),
        ("1.31-classic", ["classic", "classic v1alpha3", "double", "before 1.34"], []),
        ("1.31-classic", ["v1", "classic v1alpha2", "no taints"], ["v1", "classic v1alpha2", "no taints"]),
    ],
)
def test_a_profile_meets_the_needs_of_its_release(profile, needs, missing):
    assert features.of_profile(profile).find_missing(needs) == missing


@pytest.mark.parametrize("need", ["taint", "since 36", "since 1.36 or so", "1.36"])
def test_a_need_that_no_target_can_meet_is_an_error(need):
    with pytest.raises(ValueError, match=r"use 'since 1\.N', 'before 1\.N' or one of .*taints"):
        features.of_profile("1.36").find_missing([need])


def test_a_cluster_of_1_36_with_rules_has_a_scheduler_that_does_not_obey_them():
    served = {"resourceslices", "devicetaintrules"}
    can = capabilities.Capabilities(
        version="v1.36.3",
        minor=36,
        resources=frozenset(f"resource.k8s.io/v1/{plural}" for plural in served),
        slice_fields=frozenset({"taints"}),
        unknown_fields=frozenset({"listAttributes"}),
        impersonation=True,
    )
    of_cluster = features.of_server(can, double=False)
    assert of_cluster.names == {
        "cluster",
        "v1",
        "taints",
        "no bindingConditions",
        "no allowMultipleAllocations",
        "taint rules",
        "unscheduled taint rules",
    }


def test_no_test_is_deselected_on_every_profile():
    """Except for a real cluster: so a rule that no double can show has to name one."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "mocks/contract",
    ]
    env = {name: value for name, value in os.environ.items() if name != targets.PROFILES}
    ended = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    collected = {line.partition("[")[0] for line in ended.stdout.splitlines() if "::" in line}
    written = {
        f"mocks/contract/{path.name}::{line.removeprefix('async def ').partition('(')[0]}"
        for path in sorted((ROOT / "mocks" / "contract").glob("test_*.py"))
        for line in path.read_text().splitlines()
        if line.startswith("async def test_")
    }
    assert written - collected == {
        "mocks/contract/test_eviction.py::test_the_scheduler_of_1_36_does_not_see_rules"
    }
