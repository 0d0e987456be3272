"""The reader of a cluster. It writes nothing: it tests features by a dry run, and permissions by access reviews.

Unreadable state becomes `findings.Unread`. Only an API server that does not answer, or rejects our credentials, ends
it.
"""

import asyncio
import datetime
import functools
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from drawbar.driver.api import (
    attachments,
    claims,
    core,
    drivers,
    fabrics,
    maintenances,
    otherslices,
    slices,
    taintrules,
)
from drawbar.driver.cli.doctor import observed, permissions, reading, reviews
from drawbar.driver.cli.doctor.findings import Unread
from drawbar.driver.cli.doctor.plans import server
from drawbar.driver.cli.explain import pending
from drawbar.driver.cli.status import building, tree
from drawbar.driver.cli.status import observed as status
from drawbar.driver.kube import client, decoding, discovery, kinds, sessions
from drawbar.driver.kube import errors as kube_errors
from drawbar.driver.slices import publisher

T = TypeVar("T")

NODE_LEASES = "kube-node-lease"
_TAINT_RULES = "devicetaintrules"
_CONTEXTS = "podschedulingcontexts"


async def observe(
    connection: sessions.Connection,
    where: observed.Where,
    *,
    deadline_seconds: float = reading.DEADLINE_SECONDS,
) -> observed.Cluster:
    """Return the observed state of the cluster.

    Args:
        connection: the connection to the API server.
        where: the installation of Drawbar.
        deadline_seconds: the longest time for one read.

    Raises:
        errors.CannotCheck: the API server does not answer, or rejects our credentials.
    """
    moment = await reading.read_clock(connection)
    async with client.connecting(connection) as api:
        version = await read_version(api)
        return await _Look(reading.Reader(api, deadline_seconds=deadline_seconds), where).read(
            moment, version
        )


async def read_version(api: client.Client) -> str:
    """Return the API server's version.

    Raises:
        errors.CannotCheck: it does not answer, or rejects our credentials.
    """
    try:
        answer = await api.request("GET", "/version")
        return decoding.decode(answer, observed.VersionInfo).git_version
    except kube_errors.ConfigError:
        raise
    except kube_errors.Denied as error:
        raise reading.CannotCheck(
            f"nothing can be looked at: {api.server} refuses the credentials ({error}); log in again, or name another "
            "--kubeconfig"
        ) from error
    except (kube_errors.KubeError, decoding.Malformed) as error:
        raise reading.CannotCheck(
            f"nothing can be looked at: {api.server} does not answer as an API server does ({error}); is it the right address?"
        ) from error


class _Look:
    """One reading of everything."""

    def __init__(self, reader: reading.Reader, where: observed.Where) -> None:
        self._reader = reader
        self._where = where

    async def read(self, moment: observed.Clock, version: str) -> observed.Cluster:
        reader, where = self._reader, self._where
        ours = drivers.selector(where.driver)
        async with asyncio.TaskGroup() as tasks:

            def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
                return tasks.create_task(work, name="look")

            resources = start(self._read_resources())
            definitions = start(self._read_definitions())
            accounts = start(self._read_accounts())
            policies = start(reader.list_all(kinds.ADMISSION_POLICY, into=observed.Policy))
            bindings = start(reader.list_all(kinds.ADMISSION_BINDING, into=observed.Binding))
            lease = start(
                reader.find(kinds.LEASE, where.lease, into=observed.Lease, namespace=where.namespace)
            )
            nodes = start(reader.list_all(kinds.NODE, into=otherslices.Node))
            node_leases = start(reader.list_all(kinds.LEASE, into=observed.Lease, namespace=NODE_LEASES))
            pods = start(reader.list_all(kinds.POD, into=core.Pod, namespace=where.namespace))
            published = start(reader.list_all(kinds.SLICE, into=slices.ResourceSlice, fields=ours))
            attached = start(reader.list_all(kinds.ATTACHMENT, into=attachments.DeviceAttachment))
            in_maintenance = start(reader.list_all(kinds.MAINTENANCE, into=maintenances.Maintenance))
            managers = await reader.list_all(kinds.FABRIC, into=fabrics.Fabric)
            served = await resources
            versions = _find_versions_with(served, "")
            contexts = observed.get_objects(_find_versions_with(served, _CONTEXTS))
            access = start(self._access(managers, classic=bool(contexts)))
            features = start(self._features(versions))
            seen = start(self._read_devices(served, managers, attached, published))
            tried = start(self._trials(managers, await nodes, await attached, versions, moment.now))
        devices, waiting = seen.result()
        return observed.Cluster(
            where=where,
            server=reader.api.server,
            clock=moment,
            version=version,
            resource_versions=versions,
            taint_rules=_find_versions_with(served, _TAINT_RULES),
            definitions=definitions.result(),
            features=features.result(),
            accounts=accounts.result(),
            access=access.result(),
            policies=policies.result(),
            bindings=bindings.result(),
            lease=lease.result(),
            nodes=nodes.result(),
            node_leases=node_leases.result(),
            pods=pods.result(),
            published=published.result(),
            fabrics=managers,
            maintenances=in_maintenance.result(),
            attachments=attached.result(),
            contexts=contexts,
            trials=tried.result(),
            unreadable=tuple(reader.unreadable),
            devices=devices,
            waiting=waiting,
        )

    async def _read_devices(
        self,
        served: observed.Reading[Mapping[str, frozenset[str]]],
        managers: observed.Reading[tuple[fabrics.Fabric, ...]],
        attached_task: asyncio.Task[observed.Reading[tuple[attachments.DeviceAttachment, ...]]],
        published_task: asyncio.Task[observed.Reading[tuple[slices.ResourceSlice, ...]]],
    ) -> tuple[observed.Reading[tuple[tree.Device, ...]], observed.Reading[tuple[tree.Claim, ...]]]:
        """Return the devices, and the waiting claims with a reason."""
        if isinstance(served, Unread):
            return served, served
        if "v1" not in served:
            return (), ()
        list_all = self._reader.list_all
        rules, pods, wanted, attached, published = await asyncio.gather(
            self._list_rules(served),
            list_all(kinds.POD, into=status.UnscheduledPod, fields="spec.nodeName="),
            list_all(kinds.CLAIM, into=claims.ResourceClaim),
            attached_task,
            published_task,
        )
        cluster = status.Cluster(
            driver=self._where.driver,
            fabrics=observed.get_objects(managers),
            slices=observed.get_objects(published),
            attachments=observed.get_objects(attached),
            claims=observed.get_objects(wanted),
            rules=observed.get_objects(rules),
            pods=observed.get_objects(pods),
        )
        whole = building.build(cluster)
        devices = _find_unread(published, rules) or whole.devices
        waiting = _find_unread(published, wanted, pods)
        return devices, waiting or await pending.list_explained(self._reader.api, whole, cluster)

    async def _list_rules(
        self, served: Mapping[str, frozenset[str]]
    ) -> observed.Reading[tuple[taintrules.DeviceTaintRule, ...]]:
        kind = discovery.taint_rules(served)
        return await self._reader.list_all(kind, into=taintrules.DeviceTaintRule) if kind is not None else ()

    async def _read_resources(self) -> observed.Reading[Mapping[str, frozenset[str]]]:
        """Return the resources of each served version of the group of ResourceSlices."""
        ask = functools.partial(discovery.resources, self._reader.api, discovery.RESOURCE_GROUP)
        path = f"get /apis/{discovery.RESOURCE_GROUP}"
        return await self._reader.attempt(discovery.RESOURCE_GROUP, path, ask)

    async def _read_definitions(self) -> dict[str, observed.Reading[observed.Definition | None]]:
        """Return the definitions of Drawbar's kinds, by name."""
        find = functools.partial(self._reader.find, kinds.CUSTOM_RESOURCE, into=observed.Definition)
        return dict(zip(server.KINDS, await asyncio.gather(*map(find, server.KINDS)), strict=True))

    async def _read_accounts(self) -> dict[str, observed.Reading[bool]]:
        """Return whether the daemons' service accounts exist, by name."""
        names = (self._where.controller, self._where.node)
        return dict(zip(names, await asyncio.gather(*map(self._exists, names)), strict=True))

    async def _trials(
        self,
        managers: observed.Reading[tuple[fabrics.Fabric, ...]],
        nodes: observed.Reading[tuple[core.Node, ...]],
        attached: observed.Reading[tuple[attachments.DeviceAttachment, ...]],
        served: observed.Reading[tuple[str, ...]],
        now: datetime.datetime,
    ) -> tuple[observed.Reading[permissions.Trial], ...]:
        driver = self._where.driver
        writes = reviews.plan_writes(
            self._where,
            [
                fabric
                for fabric in observed.get_objects(managers)
                if fabric.spec.driver == driver and not fabric.deleting
            ],
            observed.get_objects(nodes),
            [attachment for attachment in observed.get_objects(attached) if attachment.spec.driver == driver],
            modern="v1" in observed.get_objects(served),
            now=now,
        )
        return await reviews.try_writes(self._reader, self._where, writes)

    async def _features(
        self, served: observed.Reading[tuple[str, ...]]
    ) -> observed.Reading[observed.Features | None]:
        if "v1" not in observed.get_objects(served):
            return None

        async def ask() -> observed.Features:
            kept = await publisher.probe(self._reader.api, self._where.driver)
            return observed.Features(dropped=kept.dropped, form=kept.form, details=kept.details)

        return await self._reader.attempt(
            "features of ResourceSlices", "create resourceslices (only a dry run is asked for)", ask
        )

    async def _exists(self, account: str) -> observed.Reading[bool]:
        item = await self._reader.find(
            kinds.SERVICE_ACCOUNT, account, into=observed.ServiceAccount, namespace=self._where.namespace
        )
        return item if isinstance(item, Unread) else item is not None

    async def _access(
        self, managers: observed.Reading[tuple[fabrics.Fabric, ...]], *, classic: bool
    ) -> tuple[observed.Reading[permissions.Answer], ...]:
        where = self._where
        ours = [
            fabric.spec for fabric in observed.get_objects(managers) if fabric.spec.driver == where.driver
        ]
        secrets = {
            spec.credentials_secret_ref.name for spec in ours if spec.credentials_secret_ref is not None
        }
        reserving = any(spec.policy.immediate != fabrics.Reservation() for spec in ours)
        parts = {permissions.Part.CLASSIC: classic, permissions.Part.IMMEDIATE: reserving}
        wanted = permissions.list_permissions(
            driver=where.driver,
            namespace=where.namespace,
            lease=where.lease,
            secrets=secrets,
            parts=[part for part, has in parts.items() if has],
        )
        return await reviews.ask(self._reader, where, wanted)


def _find_versions_with(
    served: observed.Reading[Mapping[str, frozenset[str]]], resource: str
) -> observed.Reading[tuple[str, ...]]:
    """Return the served versions with a resource, or all served versions for an empty name."""
    if isinstance(served, Unread):
        return served
    return tuple(version for version, names in served.items() if not resource or resource in names)


def _find_unread(*readings: observed.Reading[Any]) -> Unread | None:
    """Return the first failure, or None if everything was read."""
    return next((reading for reading in readings if isinstance(reading, Unread)), None)
