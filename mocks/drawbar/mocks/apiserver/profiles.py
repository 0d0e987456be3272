"""The imitated Kubernetes releases: version strings and feature gates, as data.

Gates and defaults are those of the released API servers. Only gates that affect this server's storage, dropped fields
or checks are listed. ``kep-5055`` is 1.36 with the proposal's device taints. A ResourceSlice then has devices or
taints, never both, and a taint may have a description, data and a rate of evictions. No release ever served that form.
The ``-classic`` profiles are the last two releases with allocation by a driver's controller (KEP-3063), always with
the required gates on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

BINDING_CONDITIONS = "DRADeviceBindingConditions"
TAINTS = "DRADeviceTaints"
TAINT_RULES = "DRADeviceTaintRules"
DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
GRANULAR_STATUS = "DRAResourceClaimGranularStatusAuthorization"
CONSUMABLE = "DRAConsumableCapacity"
LIST_ATTRIBUTES = "DRAListTypeAttributes"
_ALPHA_VERSIONS: Mapping[int, str] = MappingProxyType({30: "v1alpha2", 31: "v1alpha3"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One release.

    Attributes:
        name: its name on the command line, for example ``1.36``.
        release: the imitated release; it differs from the name for a proposal.
        git_version: the version in the answer of ``/version``.
        gates: the feature gates; true if on.
        taint_slices: true if taints are in slices of their own (``spec.taints``), as in the proposal.
    """

    name: str
    release: str
    git_version: str
    gates: Mapping[str, bool]
    taint_slices: bool = False

    @property
    def minor(self) -> int:
        """Return the minor version as a number."""
        return int(self.release.split(".")[1])

    @property
    def dynamic_version(self) -> str:
        """Return the served version of ``resource.k8s.io``, such as ``v1alpha2`` in 1.30 and ``v1`` since 1.34."""
        return _ALPHA_VERSIONS.get(self.minor, "v1")

    @property
    def classic(self) -> bool:
        """Return true if a driver's controller may allocate, so that PodSchedulingContexts are served."""
        return self.minor in _ALPHA_VERSIONS

    def is_on(self, gate: str) -> bool:
        """Return true if a gate exists in this release and is on."""
        return self.gates.get(gate, False)

    def with_gates(self, gates: Mapping[str, bool]) -> Profile:
        """Return the same release with some gates set by its operator.

        Raises:
            ValueError: the release has no gate of that name.
        """
        unknown = sorted(set(gates) - set(self.gates))
        if unknown:
            names = ", ".join(sorted(self.gates))
            raise ValueError(f"Kubernetes {self.name} has no feature gate {unknown[0]!r}; use one of {names}")
        return replace(self, gates=MappingProxyType({**self.gates, **gates}))


def _profile(release: str, patch: int, **gates: bool) -> Profile:
    version = f"v{release}.{patch}"
    return Profile(name=release, release=release, git_version=version, gates=MappingProxyType(gates))


def _classic(release: str, patch: int) -> Profile:
    return replace(_profile(release, patch), name=f"{release}-classic")


def _proposal(name: str, base: Profile, **gates: bool) -> Profile:
    """Return a release with a proposal's API added."""
    return replace(
        base,
        name=name,
        git_version=f"{base.git_version}-{name}",
        gates=MappingProxyType({**base.gates, **gates}),
        taint_slices=True,
    )


_1_36 = _profile(
    "1.36",
    2,
    DRADeviceBindingConditions=True,
    DRADeviceTaints=True,
    DRADeviceTaintRules=False,
    DRAResourceClaimDeviceStatus=True,
    DRAResourceClaimGranularStatusAuthorization=True,
    DRAConsumableCapacity=True,
    DRAListTypeAttributes=False,
)


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "1.30-classic": _classic("1.30", 14),
        "1.31-classic": _classic("1.31", 14),
        "1.34": _profile(
            "1.34",
            9,
            DRADeviceBindingConditions=False,
            DRADeviceTaints=False,
            DRAResourceClaimDeviceStatus=True,
            DRAConsumableCapacity=False,
        ),
        "1.36": _1_36,
        "1.37": _profile(
            "1.37",
            0,
            DRADeviceBindingConditions=True,
            DRADeviceTaints=True,
            DRADeviceTaintRules=True,
            DRAResourceClaimDeviceStatus=True,
            DRAResourceClaimGranularStatusAuthorization=True,
            DRAConsumableCapacity=True,
            DRAListTypeAttributes=False,
        ),
        "kep-5055": _proposal("kep-5055", _1_36, DRADeviceTaintRules=True),
    }
)
CLASSIC_VERSIONS: Mapping[str, str] = MappingProxyType(
    {name: each.dynamic_version for name, each in PROFILES.items() if each.classic}
)
"""The version of ``resource.k8s.io`` of each profile with allocation by a driver's controller."""


def profile(name: str) -> Profile:
    """Return the profile of that name.

    Raises:
        ValueError: there is no such profile; the message lists all.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise ValueError(f"no profile {name!r}; use one of {', '.join(PROFILES)}") from None
