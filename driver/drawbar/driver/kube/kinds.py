"""The resource types that Drawbar reads and writes, and their URLs.

Source: Kubernetes API concepts, "Resource URIs".
"""

import functools
import urllib.parse

import msgspec

from drawbar.driver.kube import errors


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One served resource type.

    Attributes:
        group: API group; empty for the core group.
        version: API version, such as `v1`.
        kind: singular CamelCase name.
        plural: lower-case name in URLs.
        namespaced: whether objects live in a namespace.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return `group/version`, or only the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of the collection (without a name) or of one object.

        Raises:
            ValueError: an object of a namespaced type was named without its namespace, or the reverse.
            errors.Invalid: no object can have that name.
        """
        if not self.namespaced and namespace:
            raise ValueError(f"{self.kind} is not namespaced, but namespace {namespace!r} was given")
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        for segment in (namespace, name):
            # A name may come from a foreign object, and must not lead to another path.
            if segment in (".", ".."):
                raise errors.Invalid(f"{segment!r} names no {self.kind}")
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if namespace:
            parts += ["namespaces", urllib.parse.quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(urllib.parse.quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


_CORE = functools.partial(Kind, group="", version="v1")
_DRA = functools.partial(Kind, group="resource.k8s.io")
_ADMISSION = functools.partial(Kind, group="admissionregistration.k8s.io", version="v1", namespaced=False)
_AUTHENTICATION = functools.partial(Kind, group="authentication.k8s.io", version="v1", namespaced=False)
_AUTHORIZATION = functools.partial(Kind, group="authorization.k8s.io", version="v1", namespaced=False)
_DRAWBAR = functools.partial(Kind, group="drawbar.dev", version="v1alpha1", namespaced=False)

NAMESPACE = _CORE(kind="Namespace", plural="namespaces", namespaced=False)
NODE = _CORE(kind="Node", plural="nodes", namespaced=False)
SECRET = _CORE(kind="Secret", plural="secrets")
POD = _CORE(kind="Pod", plural="pods")
CONFIG_MAP = _CORE(kind="ConfigMap", plural="configmaps")
SERVICE_ACCOUNT = _CORE(kind="ServiceAccount", plural="serviceaccounts")
EVENT = Kind(group="events.k8s.io", version="v1", kind="Event", plural="events")
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
CLAIM = _DRA(version="v1", kind="ResourceClaim", plural="resourceclaims")
CLAIM_TEMPLATE = _DRA(version="v1", kind="ResourceClaimTemplate", plural="resourceclaimtemplates")
SLICE = _DRA(version="v1", kind="ResourceSlice", plural="resourceslices", namespaced=False)
DEVICE_CLASS = _DRA(version="v1", kind="DeviceClass", plural="deviceclasses", namespaced=False)
# Newest first: v1 since 1.37, v1beta2 since 1.36, v1alpha3 since 1.33; all of them behind gates in some releases.
TAINT_RULES = tuple(
    _DRA(version=version, kind="DeviceTaintRule", plural="devicetaintrules", namespaced=False)
    for version in ("v1", "v1beta2", "v1alpha3")
)
# Classic dynamic resource allocation: each of these versions was served by releases that served no `v1`.
CLASSIC_CLAIMS = {
    version: _DRA(version=version, kind="ResourceClaim", plural="resourceclaims")
    for version in ("v1alpha2", "v1alpha3")
}
SCHEDULING_CONTEXTS = {
    version: _DRA(version=version, kind="PodSchedulingContext", plural="podschedulingcontexts")
    for version in ("v1alpha2", "v1alpha3")
}
RESOURCE_CLASS = _DRA(version="v1alpha2", kind="ResourceClass", plural="resourceclasses", namespaced=False)
CLASSIC_DEVICE_CLASS = _DRA(version="v1alpha3", kind="DeviceClass", plural="deviceclasses", namespaced=False)
FABRIC = _DRAWBAR(kind="Fabric", plural="fabrics")
ATTACHMENT = _DRAWBAR(kind="DeviceAttachment", plural="deviceattachments")
MAINTENANCE = _DRAWBAR(kind="Maintenance", plural="maintenances")
HEALTH_POLICY = _DRAWBAR(kind="HealthPolicy", plural="healthpolicies")
ADMISSION_POLICY = _ADMISSION(kind="ValidatingAdmissionPolicy", plural="validatingadmissionpolicies")
ADMISSION_BINDING = _ADMISSION(
    kind="ValidatingAdmissionPolicyBinding", plural="validatingadmissionpolicybindings"
)
TOKEN_REVIEW = _AUTHENTICATION(kind="TokenReview", plural="tokenreviews")
SELF_REVIEW = _AUTHENTICATION(kind="SelfSubjectReview", plural="selfsubjectreviews")
ACCESS_REVIEW = _AUTHORIZATION(kind="SubjectAccessReview", plural="subjectaccessreviews")
SELF_ACCESS_REVIEW = _AUTHORIZATION(kind="SelfSubjectAccessReview", plural="selfsubjectaccessreviews")
CUSTOM_RESOURCE = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
