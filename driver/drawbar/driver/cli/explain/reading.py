"""The reader of the cluster's state around one device, claim, pod or node."""

import asyncio
import contextlib
import datetime
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from drawbar.driver import evaluation
from drawbar.driver.api import claims, core
from drawbar.driver.cli import objects
from drawbar.driver.cli.doctor.findings import NAMED_MAX, Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.explain import choices, observed
from drawbar.driver.cli.status import building, narrowing, tree
from drawbar.driver.cli.status import observed as status
from drawbar.driver.cli.status import reading as status_reading
from drawbar.driver.kube import client, kinds

# The most claims whose Events are read; a pod may have many.
REGARDING_MOST = 16
NODES_MOST = 16

T = TypeVar("T")


async def read(api: client.Client, target: objects.Target, *, driver: str, namespace: str) -> observed.World:
    """Return the state around the target.

    Args:
        api: the cluster's API server.
        target: a device, claim, pod or node.
        driver: the DRA driver's name.
        namespace: the daemons' namespace.

    Raises:
        Missing: there is no object of that name.
        errors.DrawbarError: the API server does not answer.
    """
    async with contextlib.AsyncExitStack() as stack:
        evaluator = evaluation.Process()
        stack.push_async_callback(evaluator.aclose)
        look = _Look(Reader(api), evaluator, target, driver)
        return await look.read(namespace)


class _Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the target names.

    Attributes:
        node: the name of the target, if it is a node.
        pod: the target, if it is a pod that could be read.
        claims: the target, or the pod's claims.
        devices: the target's devices.
    """

    node: str = ""
    pod: observed.Pod | None = None
    claims: tuple[observed.Claim, ...] = ()
    devices: tuple[tree.Device, ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the node, or the nodes of the devices and the pod; each once."""
        of_pod = self.pod.spec.node_name if self.pod is not None else ""
        named = (self.node, *(device.node for device in self.devices), of_pod)
        return tuple(dict.fromkeys(name for name in named if name))

    def list_regarding(self, namespace: str) -> list[tuple[str, str, str]]:
        """Return kind, name and namespace of the objects with Events.

        Args:
            namespace: the namespace of the pod and the claims.
        """
        pods = [(kinds.POD.kind, self.pod.metadata.name, namespace)] if self.pod is not None else []
        return [
            *pods,
            *((kinds.CLAIM.kind, claim.metadata.name, namespace) for claim in self.claims),
            *(
                (kinds.ATTACHMENT.kind, device.attachment, "default")
                for device in self.devices
                if device.attachment
            ),
        ]


class _Look:
    """One reading; it keeps every failure."""

    def __init__(
        self,
        reader: Reader,
        evaluator: evaluation.Evaluator,
        target: objects.Target,
        driver: str,
    ) -> None:
        self._reader = reader
        self._chooser = choices.Chooser(reader, evaluator, driver)
        self._target = target
        self._driver = driver
        self._unread: list[Unread] = []

    async def read(self, namespace: str) -> observed.World:
        """Return the state around the target; see `read` of the module."""
        target = self._target
        cluster = await status_reading.read(self._reader.api, status_reading.Target(), driver=self._driver)
        whole = building.build(cluster)
        allocated = {
            claim.metadata.name: claim
            for claim in cluster.claims
            if claim.metadata.namespace == target.namespace and claim.status.allocation is not None
        }
        subject = await self._find_subject(whole, allocated)
        nodes = await self._nodes(subject.node_names)
        daemons, has_daemons = await self._daemons(namespace, nodes)
        return observed.World(
            kind=target.kind,
            name=target.name,
            now=datetime.datetime.now(datetime.UTC),
            cluster=cluster,
            devices=subject.devices,
            pod=subject.pod,
            claims=subject.claims,
            choices={
                claim.metadata.name: await self._chooser.choose(claim, cluster, whole.devices)
                for claim in subject.claims
                if claim.metadata.name not in allocated
            },
            nodes=nodes,
            daemons=daemons,
            has_daemons=has_daemons,
            events=await self._events(subject.list_regarding(target.namespace)[:REGARDING_MOST]),
            unread=(
                *self._unread,
                *self._chooser.unread,
                *(
                    Unread(what=left.subject, why=f"it {left.problem}", remedy=left.remedy)
                    for left in self._reader.unreadable[:NAMED_MAX]
                ),
            ),
        )

    async def _find_subject(
        self, whole: tree.Tree, allocated: Mapping[str, claims.ResourceClaim]
    ) -> _Subject:
        """Return the objects that the target names.

        Args:
            whole: the tree of the cluster.
            allocated: the allocated claims of the target's namespace, by name.
        """
        target = self._target
        match target.kind:
            case "device":
                return _Subject(devices=_find_devices(whole.devices, target.name))
            case "attachment" | "enclosure" | "fabric":
                return _Subject(devices=narrowing.narrow(whole, target).devices)
            case "node":
                return _Subject(node=target.name)
            case "claim":
                pod, wanted = None, await self._claims([target.name])
                if not wanted and not self._unread:
                    raise status_reading.Missing(
                        f"there is no ResourceClaim {target.name} in namespace {target.namespace}; -n names another namespace"
                    )
            case _:
                pod = await self._pod()
                named = observed.list_claims(pod) if pod is not None else ()
                names = [claim.resource_claim_name for claim in named if claim.resource_claim_name]
                wanted = await self._claims(names)
        keys = {
            (result.pool, result.device)
            for claim in wanted
            if claim.metadata.name in allocated
            for result in allocated[claim.metadata.name].results(self._driver)
        }
        devices = tuple(
            device for device in whole.devices if (device.pool, device.composite or device.name) in keys
        )
        return _Subject(pod=pod, claims=wanted, devices=devices)

    async def _pod(self) -> observed.Pod | None:
        target = self._target
        pod = self._keep_unread(
            await self._reader.find(kinds.POD, target.name, into=observed.Pod, namespace=target.namespace),
            None,
        )
        if pod is None and not self._unread:
            raise status_reading.Missing(
                f"there is no pod {target.name} in namespace {target.namespace}; -n names another namespace"
            )
        return pod

    async def _claims(self, names: Iterable[str]) -> tuple[observed.Claim, ...]:
        results = await asyncio.gather(
            *(
                self._reader.find(kinds.CLAIM, name, into=observed.Claim, namespace=self._target.namespace)
                for name in names
            )
        )
        seen = [self._keep_unread(result, None) for result in results]
        return tuple(claim for claim in seen if claim is not None)

    async def _nodes(self, names: Iterable[str]) -> dict[str, core.Node | None]:
        chosen = list(names)[:NODES_MOST]
        results = await asyncio.gather(
            *(self._reader.find(kinds.NODE, name, into=core.Node) for name in chosen)
        )
        nodes: dict[str, core.Node | None] = {}
        for name, result in zip(chosen, results, strict=True):
            if isinstance(result, Unread):
                self._unread.append(result)
            else:
                nodes[name] = result
        if self._target.kind == "node" and nodes.get(self._target.name, True) is None:
            raise status_reading.Missing(
                f"there is no node {self._target.name}; kubectl get nodes lists them"
            )
        return nodes

    async def _daemons(self, namespace: str, nodes: Iterable[str]) -> tuple[dict[str, core.Pod], bool]:
        """Return the node daemon's pod of each of these nodes, and whether any such pod exists."""
        if not nodes:
            return {}, False
        pods = self._keep_unread(
            await self._reader.list_all(kinds.POD, into=core.Pod, namespace=namespace), ()
        )
        running = [pod for pod in pods if _is_daemon(pod)]
        return {pod.spec.node_name: pod for pod in running if pod.spec.node_name in nodes}, bool(running)

    async def _events(self, about: Iterable[tuple[str, str, str]]) -> tuple[status.Event, ...]:
        results = await asyncio.gather(
            *(
                self._reader.list_all(
                    kinds.EVENT,
                    into=status.Event,
                    namespace=namespace,
                    fields=f"regarding.kind={kind},regarding.name={name}",
                )
                for kind, name, namespace in about
            )
        )
        events = [event for result in results for event in self._keep_unread(result, ())]
        return tuple(sorted(events, key=lambda event: event.at, reverse=True))

    def _keep_unread(self, result: T | Unread, absent: T) -> T:
        if isinstance(result, Unread):
            self._unread.append(result)
            return absent
        return result


def _is_daemon(pod: core.Pod) -> bool:
    """Return whether the pod runs a node daemon, by the chart's label or by its account."""
    component = pod.metadata.labels.get("app.kubernetes.io/component")
    return component == "node" or pod.spec.service_account_name.startswith("drawbar-node")


def _find_devices(shown: Iterable[tree.Device], name: str) -> tuple[tree.Device, ...]:
    """Return the devices of that name: `pool/name`, an attachment, or an id of the fabric manager.

    Raises:
        Missing: there is none.
    """
    listed = tuple(shown)
    chosen = tuple(
        device
        for device in listed
        if name in (device.name, f"{device.pool}/{device.name}", device.attachment, device.id)
    )
    if chosen:
        return chosen
    names = ", ".join(sorted(device.name for device in listed)[:5])
    raise status_reading.Missing(
        f"no slice, DeviceAttachment or claim has a device {name}; "
        + (f"there is {names}: drawbar status --all lists them" if names else "there are no devices")
    )
