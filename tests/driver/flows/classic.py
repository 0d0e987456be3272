"""A cluster with classic allocation for the flows: `lab.Lab` in the version of `resource.k8s.io` that it serves."""

import contextlib

import msgspec
from tests.driver.flows import lab

from drawbar.driver.api import classic_v1alpha2, classic_v1alpha3
from drawbar.driver.kube import errors, kinds
from drawbar.mocks.claims import dialects

DRIVER = "drawbar.dev"
DIALECTS = {dialect.version: dialect for dialect in dialects.CLASSIC}
MODELS = {"v1alpha2": classic_v1alpha2, "v1alpha3": classic_v1alpha3}
HOST_NAME = "kubernetes.io/hostname"


class ClassicLab(lab.Lab):
    """The cluster in the words of its version.

    Attributes:
        dialect: what of `resource.k8s.io` has which version.
    """

    def __init__(self, site, *rest):
        super().__init__(site, *rest)
        self.dialect = DIALECTS[site.release.dynamic_version]
        self.claim_kind = self.dialect.claim

    @property
    def has_parameters(self):
        """Whether parameters are in ConfigMaps, as in v1alpha2, and not in the claim."""
        return self.dialect.version == "v1alpha2"

    def claim_spec(self, parameters=None, *, immediate=False):
        """Return the spec of a claim for one disk.

        Args:
            parameters: v1alpha2, the name of a ConfigMap; v1alpha3, more of its request.
            immediate: v1alpha2, whether to allocate without a pod.
        """
        if self.has_parameters:
            spec = {"resourceClassName": "nvme.drawbar.dev"}
            if parameters:
                spec["parametersRef"] = {"kind": "ConfigMap", "name": parameters}
            return spec | ({"allocationMode": "Immediate"} if immediate else {})
        request = {"name": "disk", "deviceClassName": "nvme.drawbar.dev"} | (parameters or {})
        return {"controller": DRIVER, "devices": {"requests": [request]}}

    async def parameters(self, name, **data):
        """Create a ConfigMap that claims can name, v1alpha2."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"drawbar.dev/parameters": ""}},
            "data": data,
        }
        await self.api.create(kinds.CONFIG_MAP, body, namespace="default", into=dict)

    async def make_claim(self, name, parameters=None, *, immediate=False):
        spec = self.claim_spec(parameters, immediate=immediate)
        await self.create(self.claim_kind, name, "default", spec=spec)

    async def pod(self, name, *, claims=1, node=None):
        """Create a pod with claims from a template, for one disk each."""
        await self.create(self.dialect.template, name, "default", spec={"spec": self.claim_spec()})
        uses = [(f"disk-{number}", {"resourceClaimTemplateName": name}) for number in range(claims)]
        await self._pod(name, uses, node)

    async def pod_with(self, name, *claims, node=None):
        """Create a pod that uses existing claims."""
        await self._pod(name, [(claim, {"resourceClaimName": claim}) for claim in claims], node)

    async def _pod(self, name, uses, node):
        container = {
            "name": "main",
            "image": "none",
            "resources": {"claims": [{"name": use} for use, _ in uses]},
        }
        spec = {
            "containers": [container],
            "resourceClaims": [
                {"name": use} | ({"source": source} if self.has_parameters else source)
                for use, source in uses
            ],
        }
        # The scheduler decides, as for any pod: with `nodeName` there is none.
        selector = {"nodeSelector": {HOST_NAME: node}} if node else {}
        await self.create(kinds.POD, name, "default", spec=spec | selector)

    async def end(self, pod):
        """Delete a pod, and wait until it is gone."""
        await self.api.delete(kinds.POD, pod, namespace="default")
        await self.wait_until_gone(pod)

    async def read(self, claim):
        """Return a claim by its name."""
        return await self.api.read(self.claim_kind, claim, namespace="default", into=dict)

    def handle(self, claim):
        """Return the handle of our controller's allocation to the claim; None without one."""
        models = MODELS[self.dialect.version]
        allocation = models.claim(msgspec.convert(claim, models.ResourceClaim), DRIVER).allocation
        return allocation and allocation.handle

    async def wait_for_devices(self, claim):
        """Return the node and the devices of a claim, by its name, once it is allocated."""
        handle = self.handle(await self.until(lambda: self.read(claim), self.handle))
        return handle.node, sorted(device.device for device in handle.devices)

    async def devices_of(self, pod):
        handles = [self.handle(claim) for claim in await self.claims(pod)]
        return sorted(device.device for handle in handles if handle for device in handle.devices)

    async def unsuitable(self, pod):
        """Return the nodes that our controller named as unsuitable, by the claim's name in the pod.

        Return None if the pod has no context."""
        with contextlib.suppress(errors.NotFound):
            context = await self.api.read(self.dialect.context, pod, namespace="default", into=dict)
            listed = context.get("status", {}).get("resourceClaims", ())
            return {entry["name"]: sorted(entry.get("unsuitableNodes", ())) for entry in listed}
        return None

    async def serves(self):
        """Wait until the Fabric's hosts are Nodes, from when on the controller serves claims."""

        def has_mapped_hosts(fabric):
            conditions = fabric.get("status", {}).get("conditions", ())
            return any(
                (condition["type"], condition["status"]) == ("HostsMapped", "True")
                for condition in conditions
            )

        await self.until(lambda: self.api.read(kinds.FABRIC, "fab", into=dict), has_mapped_hosts)
