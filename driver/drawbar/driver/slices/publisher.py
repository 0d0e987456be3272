"""Where slices are written: into the API server, or into memory.

On a cluster with classic dynamic resource allocation no device may be offered by slices, since its scheduler does not know
binding conditions. The devices and their taints are computed all the same and kept in memory, from where the controller of
classic claims takes them, so taints have the same causes and the same end everywhere. After a restart the probations of
failures begin anew there.
"""

import itertools
from typing import Protocol

import msgspec

from drawbar.driver.api import slices
from drawbar.driver.kube import client, kinds
from drawbar.driver.slices import encoding, probe


class Store(Protocol):
    """Where slices are written. Each method raises `kube.errors.KubeError`."""

    async def kept(self, driver: str) -> probe.Kept:
        """What is kept of a slice there."""
        ...

    async def create(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Stores a new slice."""
        ...

    async def replace(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Stores a slice anew, if it is still the version that was seen."""
        ...

    async def delete(self, known: slices.ResourceSlice) -> None:
        """Removes a slice, if it is still the version that was seen."""
        ...


class Served:
    """The API server."""

    def __init__(self, api: client.Client) -> None:
        self._api = api

    async def kept(self, driver: str) -> probe.Kept:
        """What the API server keeps, as it was tried."""
        return await probe.kept(self._api, driver)

    async def create(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Stores a new slice."""
        return await self._api.create(kinds.SLICE, slices.document(wanted), into=slices.ResourceSlice)

    async def replace(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Stores a slice anew."""
        return await self._api.replace(
            kinds.SLICE, wanted.metadata.name, slices.document(wanted), into=slices.ResourceSlice
        )

    async def delete(self, known: slices.ResourceSlice) -> None:
        """Removes a slice."""
        await self._api.delete(
            kinds.SLICE,
            known.metadata.name,
            uid=known.metadata.uid,
            resource_version=known.metadata.resource_version,
        )


class Memory:
    """Memory. The publisher is the only writer, so no view is ever stale."""

    def __init__(self) -> None:
        self._versions = itertools.count(1)

    async def kept(self, driver: str) -> probe.Kept:
        """Everything."""
        del driver
        return probe.Kept(dropped=(), form=encoding.Encoding.PER_DEVICE, details=encoding.DETAILS)

    async def create(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Gives the slice a name of its own and a version."""
        return self._stored(wanted, uid=f"memory-{next(self._versions)}")

    async def replace(self, wanted: slices.ResourceSlice) -> slices.ResourceSlice:
        """Gives the slice a new version."""
        return self._stored(wanted, uid=wanted.metadata.uid)

    async def delete(self, known: slices.ResourceSlice) -> None:
        """There is nothing to remove: the publisher's own copy is the only one."""

    def _stored(self, wanted: slices.ResourceSlice, *, uid: str) -> slices.ResourceSlice:
        metadata = msgspec.structs.replace(
            wanted.metadata, uid=uid, resource_version=str(next(self._versions))
        )
        return msgspec.structs.replace(wanted, metadata=metadata)
