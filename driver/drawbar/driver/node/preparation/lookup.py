"""Which devices a claim was given: the attachments say it, or the handle that the kubelet passes, or else the claim.

The claim is read only where it must be. With a handle that is when no attachment of this node knows of the claim: so it
is found out whether there is such a claim at all. Without one it is always so on clusters that have no `v1`.
"""

import asyncio

from drawbar.driver.api import claims, meta
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.node import errors
from drawbar.driver.node.classic import allocations, reading
from drawbar.driver.node.plugin import servicers
from drawbar.driver.node.preparation import finding, limits

CLAIM_UNREADABLE = "ClaimUnreadable"
NOT_ALLOCATED = "ClaimNotAllocated"


class Lookup:
    """Looks claims up for one node."""

    def __init__(self, claims_: reading.Reader, finder: finding.Finder) -> None:
        self._claims = claims_
        self._finder = finder

    async def wanted(self, claim: servicers.ClaimName) -> tuple[finding.Wanted, ...]:
        """The devices of the claim.

        Raises:
            errors.PrepareError: the claim is gone, has none, or cannot be read; or the handle cannot be used.
        """
        if claim.handle is not None:
            return await self._handed(claim, claim.handle)
        # A classic controller attaches before it knows of all requests whether they get a device.
        known = self._finder.known(claim.uid) if self._claims.modern else None
        return self._finder.wanted(await self._read(claim)) if known is None else known

    async def _handed(self, claim: servicers.ClaimName, data: str) -> tuple[finding.Wanted, ...]:
        where, node = f"claim {claim.namespace}/{claim.name}", self._finder.node_name
        handle = allocations.for_node(allocations.decoded(data, where), where, node)
        if not self._finder.attached_for(claim.uid):
            await self._read(claim)
        allocated = allocations.claim(meta.ObjectMeta(), handle, self._finder.driver, node)
        return self._finder.wanted(allocated)

    async def _read(self, claim: servicers.ClaimName) -> claims.ResourceClaim:
        where = f"claim {claim.namespace}/{claim.name}"
        try:
            async with asyncio.timeout(limits.CLAIM_READ_SECONDS):
                current = await self._claims.read(claim.name, claim.namespace)
        except TimeoutError as error:
            raise errors.PrepareError(
                f"cannot read {where}: no answer from the API server in {limits.CLAIM_READ_SECONDS:g} s; "
                f"look at its health",
                reason=CLAIM_UNREADABLE,
            ) from error
        except kube_errors.NotFound as error:
            raise errors.PrepareError(f"{where} does not exist any more", reason=errors.CLAIM_GONE) from error
        except kube_errors.KubeError as error:
            raise errors.PrepareError(f"cannot read {where}: {error}", reason=CLAIM_UNREADABLE) from error
        if current.metadata.uid != claim.uid:
            raise errors.PrepareError(
                f"{where} was replaced by another claim of that name; delete the pod",
                reason=errors.CLAIM_GONE,
            )
        if current.status.allocation is None:
            raise errors.PrepareError(f"{where} is not allocated", reason=NOT_ALLOCATED)
        return current
