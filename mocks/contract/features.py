"""The features that a rule needs and a target has; `pytest.mark.needs` compares them.

A test names its needs, for example `@pytest.mark.needs("taints", "since 1.36")`, and a fixture with `declare_needs`. All
needs have to be met. A test never begins on a target without a feature that it needs: `conftest.py` deselects it at
collection. A feature of a double follows from its profile, and a feature of a cluster from its answers. Before the first
test, the double's answers have to confirm its profile.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from contract import bodies, capabilities
from drawbar.mocks.apiserver import profiles

V1 = "v1"
CLASSIC = "classic"
TAINT_RULES = "taint rules"
SCHEDULED_RULES = "scheduled taint rules"
UNSCHEDULED_RULES = "unscheduled taint rules"
TAINT_SLICES = "taint slices"
DOUBLE = "double"
CLUSTER = "cluster"
NAMES = frozenset(
    {V1, CLASSIC, TAINT_RULES, SCHEDULED_RULES, UNSCHEDULED_RULES, TAINT_SLICES, DOUBLE, CLUSTER}
    | {f"{CLASSIC} {version}" for version in profiles.CLASSIC_VERSIONS.values()}
    | set(bodies.GATED_SLICE_FIELDS)
    | {f"no {field}" for field in bodies.GATED_SLICE_FIELDS}
)
"""Every need but those of a release.

`v1`: ResourceClaims, ResourceSlices and DeviceClasses in `resource.k8s.io/v1`. `classic`: PodSchedulingContexts, also of one
version. `taint rules`: DeviceTaintRules with a status; `scheduled` if the scheduler obeys them. `taint slices`: slices
with taints and no devices. A device's field, for example `taints`: the field is kept; `no taints`: it is known and
dropped. `double` and `cluster`: the kind of target.
"""
_GATES = {
    "bindingConditions": profiles.BINDING_CONDITIONS,
    "taints": profiles.TAINTS,
    "allowMultipleAllocations": profiles.CONSUMABLE,
    "listAttributes": profiles.LIST_ATTRIBUTES,
}
_RELEASE = re.compile(r"(since|before) 1\.(\d+)")
_FIXTURES: dict[tuple[str, str], tuple[str, ...]] = {}
_Fixture = TypeVar("_Fixture", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of one target.

    Attributes:
        minor: the minor version of its release.
        names: its features, each one of `NAMES`.
    """

    minor: int
    names: frozenset[str]

    def find_missing(self, needs: Iterable[str]) -> list[str]:
        """Return the needs that the target does not meet.

        Raises:
            ValueError: a need is neither one of `NAMES` nor "since 1.N" or "before 1.N".
        """
        return [need for need in needs if not self._meets(need)]

    def _meets(self, need: str) -> bool:
        if need in NAMES:
            return need in self.names
        if (release := _RELEASE.fullmatch(need)) is None:
            known = ", ".join(sorted(NAMES))
            raise ValueError(f"no target can have {need!r}; use 'since 1.N', 'before 1.N' or one of {known}")
        return (self.minor >= int(release[2])) is (release[1] == "since")


def of_profile(name: str) -> Features:
    """Return the features of the double of a profile."""
    profile = profiles.profile(name)
    if profile.dynamic_version != V1:
        return Features(
            minor=profile.minor, names=frozenset({DOUBLE, CLASSIC, f"{CLASSIC} {profile.dynamic_version}"})
        )
    known = {field for field, gate in _GATES.items() if gate in profile.gates}
    if profile.taint_slices:
        known.discard("taints")
    kept = {field for field in known if profile.is_on(_GATES[field])}
    return _features(
        profile.minor,
        {DOUBLE, V1, *({TAINT_SLICES} if profile.taint_slices else ())},
        kept=kept,
        known=known,
        rules=profile.is_on(profiles.TAINT_RULES),
    )


def of_server(can: capabilities.Capabilities, *, double: bool) -> Features:
    """Return the features of a server that has been asked."""
    names = {DOUBLE if double else CLUSTER}
    if can.classic:
        names |= {CLASSIC, f"{CLASSIC} {can.classic}"}
    if can.taint_slices:
        names.add(TAINT_SLICES)
    if not can.serves("resourceslices"):
        return Features(minor=can.minor, names=frozenset(names))
    known = set(bodies.GATED_SLICE_FIELDS) - can.unknown_fields
    return _features(
        can.minor, {V1, *names}, kept=can.slice_fields, known=known, rules=can.serves("devicetaintrules")
    )


def _features(
    minor: int, names: set[str], *, kept: Iterable[str], known: Iterable[str], rules: bool
) -> Features:
    names |= set(kept) | {f"no {field}" for field in set(known) - set(kept)}
    if rules:
        # The scheduler of 1.36 reads rules in a version that it takes for another; the proposal's does not.
        obeyed = minor != 36 or TAINT_SLICES in names
        names |= {TAINT_RULES, SCHEDULED_RULES if obeyed else UNSCHEDULED_RULES}
    return Features(minor=minor, names=frozenset(names))


def declare_needs(*needs: str) -> Callable[[_Fixture], _Fixture]:
    """Return a decorator for the function of a fixture: each test that uses it has these needs, too."""

    def note(fixture: _Fixture) -> _Fixture:
        _FIXTURES[fixture.__module__, fixture.__name__] = needs
        return fixture

    return note


def of_fixtures(modules: Iterable[str], fixtures: Iterable[str]) -> list[str]:
    """Return the needs of the fixtures of these names in these modules."""
    names = list(fixtures)
    return [need for module in modules for fixture in names for need in _FIXTURES.get((module, fixture), ())]
