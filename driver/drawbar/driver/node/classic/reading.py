"""Reads claims in whatever version this cluster has them.

A claim that one version does not find is looked for in the others, and once more in what is served by then: "gone" is
believed only when nobody knows it.
"""

from drawbar.driver.api import claims, meta
from drawbar.driver.kube import client, kinds
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node.classic import allocations, served


class _Named(meta.Struct, frozen=True):
    metadata: meta.ObjectMeta


class Reader:
    """Claims as `api.claims` has them."""

    def __init__(self, api: client.Client, *, driver: str, node_name: str, versions: served.Served) -> None:
        self._api = api
        self._driver = driver
        self._node_name = node_name
        self._versions = versions

    @property
    def modern(self) -> bool:
        """Whether the scheduler allocates, so that an attachment may say all there is about its claim's devices."""
        return self._versions.modern.is_set()

    async def read(self, name: str, namespace: str) -> claims.ResourceClaim:
        """One claim.

        Raises:
            kube_errors.NotFound: no version that is served has it.
            kube_errors.KubeError: the API server did not tell.
            errors.PrepareError: it is allocated by a handle that cannot be used.
        """
        asked: tuple[kinds.Kind, ...] = ()
        missing: kube_errors.NotFound | None = None
        while kinds_left := [kind for kind in await self._kinds(asked) if kind not in asked]:
            for kind in kinds_left:
                try:
                    return await self._read(kind, name, namespace)
                except kube_errors.NotFound as error:
                    missing = missing or error
            asked = (*asked, *kinds_left)
        if missing is None:
            raise kube_errors.Unreachable(
                f"claim {namespace}/{name} cannot be read: this cluster serves claims in no version that is known here"
            )
        raise missing

    async def all_names(self) -> tuple[meta.ObjectMeta, ...]:
        """Every claim of the cluster.

        Raises:
            kube_errors.KubeError: the API server did not tell.
        """
        found: dict[str, meta.ObjectMeta] = {}
        for kind in await self._kinds(()):
            listing = await self._api.list_all(kind, into=_Named)
            found.update({one.metadata.uid: one.metadata for one in listing.items})
        return tuple(found.values())

    async def _kinds(self, asked: tuple[kinds.Kind, ...]) -> tuple[kinds.Kind, ...]:
        """The versions to ask; with `asked`, whether there are others by now."""
        versions = self._versions
        if not versions.known.is_set() or (asked and not versions.modern.is_set()):
            await versions.ask()
        return versions.claims

    async def _read(self, kind: kinds.Kind, name: str, namespace: str) -> claims.ResourceClaim:
        if kind.version != served.V1ALPHA2:
            claim = await self._api.read(kind, name, namespace=namespace, into=claims.ResourceClaim)
            modern = kind.version != served.V1ALPHA3
            return claim if modern else allocations.understood(claim, self._node_name)
        # Its types are memory that few clusters need.
        from drawbar.driver.api import classic_v1alpha2

        found = await self._api.read(kind, name, namespace=namespace, into=classic_v1alpha2.ResourceClaim)
        given = found.status.allocation
        if given is None:
            return claims.ResourceClaim(metadata=found.metadata)
        # A handle without a driver is for the one that allocated the claim.
        by_driver = {one.driver_name or found.status.driver_name: one.data for one in given.resource_handles}
        handle = allocations.decoded(by_driver.get(self._driver, ""), f"claim {namespace}/{name}")
        return allocations.claim(found.metadata, handle, self._driver, self._node_name)
