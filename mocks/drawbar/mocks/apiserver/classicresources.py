"""The kinds of ``resource.k8s.io`` in 1.30 (``v1alpha2``) and 1.31 (``v1alpha3``), as data.

Both releases serve one version of the group and no other, so that a client of ``v1`` finds nothing there.
PodSchedulingContexts are served whether their gate is on or off.
"""

from __future__ import annotations

from types import MappingProxyType

from drawbar.mocks.apiserver import schemas
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import RESOURCE_GROUP, ResourceType
from drawbar.mocks.apiserver.schemas import Schema

_CLAIM = schemas.record(
    metadata=schemas.METADATA,
    spec=schemas.record(parametersRef=schemas.OPEN),
    status=schemas.record(
        allocation=schemas.record(availableOnNodes=schemas.ATOMIC, nodeSelector=schemas.ATOMIC),
        reservedFor=schemas.keyed("uid"),
    ),
)
_CONTEXT = schemas.record(
    metadata=schemas.METADATA,
    # Strategic merge replaces this list: the type carries no patch key.
    status=schemas.record(resourceClaims=schemas.keyed("name", strategic="")),
)
_CLASS = schemas.record(
    metadata=schemas.METADATA,
    suitableNodes=schemas.ATOMIC,
    spec=schemas.record(suitableNodes=schemas.ATOMIC),
)


def of(profile: Profile) -> tuple[ResourceType, ...]:
    """The kinds that a release with classic dynamic resource allocation serves."""
    version = profile.dynamic_version
    found = [
        _kind(version, "ResourceClaim", "resourceclaims", schema=_CLAIM, status=True),
        _kind(version, "ResourceClaimTemplate", "resourceclaimtemplates"),
        _kind(version, "PodSchedulingContext", "podschedulingcontexts", schema=_CONTEXT, status=True),
    ]
    if version == "v1alpha2":
        return (
            *found,
            _kind(version, "ResourceClass", "resourceclasses", schema=_CLASS, namespaced=False, counted=True),
            _kind(version, "ResourceClaimParameters", "resourceclaimparameters", counted=True),
            _kind(version, "ResourceClassParameters", "resourceclassparameters", counted=True),
            _slices(version, "nodeName", "driverName"),
        )
    return (
        *found,
        _kind(version, "DeviceClass", "deviceclasses", schema=_CLASS, namespaced=False, counted=True),
        _slices(version, "spec.nodeName", "spec.driver", schema=schemas.SLICE),
    )


def _slices(version: str, *fields: str, schema: Schema = schemas.PLAIN) -> ResourceType:
    return _kind(
        version, "ResourceSlice", "resourceslices", *fields, schema=schema, namespaced=False, counted=True
    )


def _kind(
    version: str,
    kind: str,
    plural: str,
    *fields: str,
    schema: Schema = schemas.PLAIN,
    namespaced: bool = True,
    status: bool = False,
    counted: bool = False,
) -> ResourceType:
    return ResourceType(
        group=RESOURCE_GROUP,
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=namespaced,
        versions=(version,),
        subresources=("status",) if status else (),
        fields=MappingProxyType({field: field for field in fields}),
        schema=schema,
        counts_generation=counted,
        returns_object=True,
    )
