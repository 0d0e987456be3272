"""Discovery documents: the groups, versions and resources.

The aggregated form is not served; clients fall back to one document for each group and version.
"""

from __future__ import annotations

from typing import Any

from drawbar.mocks.apiserver import visits
from drawbar.mocks.apiserver.profiles import Profile
from drawbar.mocks.apiserver.resources import ALL_VERBS, Catalogue, ResourceType

Json = dict[str, Any]

REVIEWS = {
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
    "authentication.k8s.io": (
        ("selfsubjectreviews", "SelfSubjectReview"),
        ("tokenreviews", "TokenReview"),
    ),
}


def version_info(profile: Profile) -> Json:
    """Return the answer of ``/version``."""
    major, minor = profile.release.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": profile.git_version,
        "gitCommit": "0" * 40,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def core_versions() -> Json:
    """Return the answer of ``/api``."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalogue: Catalogue) -> Json:
    """Return the answer of ``/apis``."""
    listed = [group(catalogue, name) for name in groups(catalogue) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [g for g in listed if g is not None]}


def group(catalogue: Catalogue, name: str) -> Json | None:
    """Return the answer of ``/apis/<group>``, or None if there is no such group."""
    versions = groups(catalogue).get(name)
    if not versions:
        return None
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": name,
        "versions": listed,
        "preferredVersion": listed[0],
    }


def resource_list(catalogue: Catalogue, name: str, version: str) -> Json | None:
    """Return the answer of ``/api/v1`` or ``/apis/<group>/<version>``, or None if it is not served."""
    if version not in groups(catalogue).get(name, ()):
        return None
    entries: list[Json] = []
    for resource in catalogue.all():
        if resource.group == name and version in resource.versions:
            entries += _entries(resource)
    for plural, kind in REVIEWS.get(name, ()):
        entries.append(
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": plural.startswith("local"),
                "kind": kind,
                "verbs": ["create"],
            }
        )
    group_version = f"{name}/{version}" if name else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def groups(catalogue: Catalogue) -> dict[str, list[str]]:
    """Return each served API group with its versions, preferred first."""
    return catalogue.groups() | {name: ["v1"] for name in REVIEWS}


def _entries(resource: ResourceType) -> list[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    entries = [entry]
    for name in resource.subresources:
        created = visits.CREATED.get(name)
        verbs = ["create"] if created else ["get", "patch", "update"]
        kind = created or resource.kind
        entries.append(
            {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": verbs,
            }
        )
    return entries
