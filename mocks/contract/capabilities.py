"""The abilities of a server, found by asking it: its version, its resources, and the fields that a dry run keeps.

OpenAPI is no help here: it lists the fields of gates that are off.
"""

import re
from dataclasses import dataclass
from typing import Any

from contract import api, bodies, kinds

RULES = ("v1", "v1beta2", "v1alpha3")
_RULE_STATUS = "devicetaintrules/status"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One server.

    Attributes:
        version: the server's `gitVersion`.
        minor: the minor version.
        resources: its resources, as `group/version/plural`, also subresources.
        slice_fields: the fields of a device that a dry run keeps.
        unknown_fields: the fields of a device that the server does not know, so that it warns.
        impersonation: whether our caller may act as others.
        classic: the version of `resource.k8s.io` that has PodSchedulingContexts; empty if none has.
        rules: the newest version that has DeviceTaintRules with a status, as `kinds.KINDS` if none has.
        taint_slices: true if a dry run keeps the taints of a slice without devices, as in the proposal KEP-5055.
    """

    version: str
    minor: int
    resources: frozenset[str]
    slice_fields: frozenset[str]
    unknown_fields: frozenset[str]
    impersonation: bool
    classic: str = ""
    rules: str = "v1"
    taint_slices: bool = False

    def serves(self, plural: str) -> bool:
        """Return whether the kind of `kinds.KINDS` is there."""
        return self.has(kinds.with_rules(self.rules)[plural], plural)

    def has(self, kind: kinds.Kind, plural: str) -> bool:
        """Return whether a kind is there."""
        return f"{kind.api_version}/{plural}" in self.resources

    def keeps(self, *fields: str) -> bool:
        """Return whether all these fields of a ResourceSlice survive a write."""
        return set(fields) <= self.slice_fields


async def detect(client: api.Client, name: str) -> Capabilities:
    """Ask a server; `name` is for the dry-run slice, which is never stored.

    Raises:
        PermissionError: the caller may not discover the resources.
    """
    version = (await client.get("/version")).body
    resources = await _resources(client)
    kept, unknown = await _slice_fields(client, name)
    return Capabilities(
        version=version["gitVersion"],
        minor=int(re.sub(r"\D.*", "", version["minor"])),
        resources=resources,
        slice_fields=kept,
        unknown_fields=unknown,
        impersonation=await _impersonates(client, name),
        classic=_classic(resources),
        rules=next(
            (release for release in RULES if f"resource.k8s.io/{release}/{_RULE_STATUS}" in resources), "v1"
        ),
        taint_slices=await _keeps_taint_slices(client, name),
    )


def _classic(resources: frozenset[str]) -> str:
    versions = sorted(
        resource.split("/")[1] for resource in resources if resource.endswith("/podschedulingcontexts")
    )
    return versions[-1] if versions else ""


async def _resources(client: api.Client) -> frozenset[str]:
    reply = await client.get("/apis")
    if reply.code != 200:
        raise PermissionError(reply.message)
    groups = reply.body["groups"]
    versions = ["v1"] + [version["groupVersion"] for group in groups for version in group["versions"]]
    resources: set[str] = set()
    for version in versions:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        listed = await client.get(path)
        if listed.code == 200:  # an aggregated API may be out of order
            resources |= {f"{version}/{resource['name']}" for resource in listed.body["resources"]}
    return frozenset(resources)


async def _slice_fields(client: api.Client, name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the kept and the unknown fields. One probe per field: one that is refused must not hide the others."""
    stored, unknown = set(), set()
    for field, change in bodies.GATED_SLICE_FIELDS.items():
        body = bodies.slice_of(name, driver=f"{name}.drawbar.dev", devices=[bodies.device("d", **change)])
        reply = await client.post(
            f"{kinds.KINDS['resourceslices'].prefix}/resourceslices", body, dryRun="All"
        )
        kept = reply.body["spec"]["devices"][0] if reply.code == 201 else {}
        if _contains(kept, change):
            stored.add(field)
        if "unknown field" in reply.headers.get("Warning", ""):
            unknown.add(field)
    return frozenset(stored), frozenset(unknown)


async def _keeps_taint_slices(client: api.Client, name: str) -> bool:
    body = bodies.slice_of(
        name, driver=f"{name}.drawbar.dev", taints=[{"device": "d", "taint": bodies.PROBE}]
    )
    del body["spec"]["devices"]
    reply = await client.post(f"{kinds.KINDS['resourceslices'].prefix}/resourceslices", body, dryRun="All")
    return reply.code == 201 and "taints" in reply.body["spec"]


def _contains(held: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(held, dict) and all(
            _contains(held.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(held, list)
            and len(held) == len(wanted)
            and all(_contains(element, other) for element, other in zip(held, wanted, strict=True))
        )
    return bool(held == wanted)


async def _impersonates(client: api.Client, name: str) -> bool:
    headers = {**client.extra, "Impersonate-User": name}
    other = api.Client(connection=client.connection, session=client.session, extra=headers)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = await other.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    return reply.code == 201 and reply.body["status"]["userInfo"]["username"] == name
