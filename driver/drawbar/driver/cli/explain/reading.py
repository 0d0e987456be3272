"""The reader of the cluster's state around one device, claim, pod or node."""

import asyncio
import contextlib
import datetime
from collections.abc import Iterable
from typing import TypeVar

from drawbar.driver import evaluation
from drawbar.driver.api import core
from drawbar.driver.cli import objects
from drawbar.driver.cli.doctor.findings import NAMED_MAX, Unread
from drawbar.driver.cli.doctor.reading import Reader
from drawbar.driver.cli.explain import choices, observed
from drawbar.driver.cli.status import observed as status
from drawbar.driver.cli.status import reading as status_reading
from drawbar.driver.cli.status import tree
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
        return await look.whole(namespace)


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

    async def whole(self, namespace: str) -> observed.World:
        target = self._target
        cluster = await status_reading.read(self._reader.api, status_reading.Target(), driver=self._driver)
        whole = tree.build(cluster)
        shown = whole.devices
        pod = await self._pod() if target.kind == "pod" else None
        devices: tuple[tree.Device, ...] = ()
        wanted: tuple[observed.Claim, ...] = ()
        if target.kind == "device":
            devices = _find_devices(shown, target.name)
        elif target.kind in ("attachment", "enclosure", "fabric"):
            devices = tree.within(whole, target).devices
        elif target.kind == "claim":
            wanted = await self._claims([target.name])
            if not wanted and not self._unread:
                raise status_reading.Missing(
                    f"there is no ResourceClaim {target.name} in namespace {target.namespace}; -n names another namespace"
                )
        elif pod is not None:
            wanted = await self._claims([name for _, name in pod.claim_names if name])
        allocated = {
            claim.metadata.name: claim
            for claim in cluster.claims
            if claim.metadata.namespace == target.namespace and claim.status.allocation is not None
        }
        keys = {
            (result.pool, result.device)
            for claim in wanted
            if claim.metadata.name in allocated
            for result in allocated[claim.metadata.name].results(self._driver)
        }
        if target.kind in ("claim", "pod"):
            devices = tuple(
                device for device in shown if (device.pool, device.composite or device.name) in keys
            )
        names = [target.name] if target.kind == "node" else [device.node for device in devices if device.node]
        if pod is not None and pod.spec.node_name:
            names.append(pod.spec.node_name)
        nodes = await self._nodes(dict.fromkeys(names))
        daemons, has_daemons = await self._daemons(namespace, nodes)
        about = [(kinds.POD.kind, pod.metadata.name, target.namespace)] if pod is not None else []
        about += [(kinds.CLAIM.kind, claim.metadata.name, target.namespace) for claim in wanted]
        about += [
            (kinds.ATTACHMENT.kind, device.attachment, "default") for device in devices if device.attachment
        ]
        return observed.World(
            kind=target.kind,
            name=target.name,
            now=datetime.datetime.now(datetime.UTC),
            cluster=cluster,
            devices=devices,
            pod=pod,
            claims=wanted,
            choices={
                claim.metadata.name: await self._chooser.choose(claim, cluster, shown)
                for claim in wanted
                if claim.metadata.name not in allocated
            },
            nodes=nodes,
            daemons=daemons,
            has_daemons=has_daemons,
            events=await self._events(about[:REGARDING_MOST]),
            unread=(
                *self._unread,
                *self._chooser.unread,
                *(
                    Unread(what=left.subject, why=f"it {left.problem}", remedy=left.remedy)
                    for left in self._reader.unreadable[:NAMED_MAX]
                ),
            ),
        )

    async def _pod(self) -> observed.Pod | None:
        target = self._target
        pod = self._seen(
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
        seen = [self._seen(result, None) for result in results]
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
        pods = self._seen(await self._reader.list_all(kinds.POD, into=core.Pod, namespace=namespace), ())
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
        events = [event for result in results for event in self._seen(result, ())]
        return tuple(sorted(events, key=lambda event: event.at, reverse=True))

    def _seen(self, result: T | Unread, absent: T) -> T:
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
