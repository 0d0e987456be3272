"""The kinds of objects that the doubles read and write, and their URLs."""

import dataclasses
import functools
import urllib.parse

from drawbar.mocks.kube import errors


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One served kind.

    Attributes:
        group: the API group; empty for the core group.
        version: the API version, such as `v1`.
        kind: the singular name.
        plural: the name in URLs.
        namespaced: true if its objects are in namespaces.
    """

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str = "", subresource: str | None = None) -> str:
        """Return the path of the collection, or with a name that of an object.

        Raises:
            errors.Invalid: no object can have that name.
        """
        if name in (".", "..") or (name and self.namespaced and not namespace):
            raise errors.Invalid(f"{namespace or ''}/{name} names no {self.kind}")
        scope = ("namespaces", namespace) if self.namespaced and namespace else ()
        segments = (self.version, *scope, self.plural, name, subresource or "")
        root = f"/apis/{self.group}" if self.group else "/api"
        return "/".join([root, *(urllib.parse.quote(each, safe="") for each in segments if each)])


_DRA = functools.partial(Kind, group="resource.k8s.io")
_DRAWBAR = functools.partial(Kind, group="drawbar.dev", version="v1alpha1", namespaced=False)
CLASSIC_VERSIONS = ("v1alpha2", "v1alpha3")
"""The versions of classic dynamic resource allocation."""

NAMESPACE = Kind(kind="Namespace", plural="namespaces", namespaced=False)
NODE = Kind(kind="Node", plural="nodes", namespaced=False)
POD = Kind(kind="Pod", plural="pods")
CONFIG_MAP = Kind(kind="ConfigMap", plural="configmaps")
EVENT = Kind(group="events.k8s.io", kind="Event", plural="events")
CLAIM = _DRA(kind="ResourceClaim", plural="resourceclaims")
CLAIM_TEMPLATE = _DRA(kind="ResourceClaimTemplate", plural="resourceclaimtemplates")
SLICE = _DRA(kind="ResourceSlice", plural="resourceslices", namespaced=False)
DEVICE_CLASS = _DRA(kind="DeviceClass", plural="deviceclasses", namespaced=False)
CLASSIC_CLAIMS = {version: dataclasses.replace(CLAIM, version=version) for version in CLASSIC_VERSIONS}
SCHEDULING_CONTEXTS = {
    version: _DRA(version=version, kind="PodSchedulingContext", plural="podschedulingcontexts")
    for version in CLASSIC_VERSIONS
}
RESOURCE_CLASS = _DRA(version="v1alpha2", kind="ResourceClass", plural="resourceclasses", namespaced=False)
CLASSIC_DEVICE_CLASS = dataclasses.replace(DEVICE_CLASS, version="v1alpha3")
FABRIC = _DRAWBAR(kind="Fabric", plural="fabrics")
ATTACHMENT = _DRAWBAR(kind="DeviceAttachment", plural="deviceattachments")
