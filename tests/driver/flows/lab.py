"""Both of our daemons as they are, in a cluster: of doubles in this process, or of real components (`sites`).

A test sees the cluster through `Lab`, and is the same for both.
"""

import asyncio
import contextlib
import io
import json

import yaml
from tests.driver.flows import sites
from tests.driver.flows.sites import NODES

from drawbar.driver import main
from drawbar.driver.controller import daemon as controller
from drawbar.driver.controller import settings as controller_settings
from drawbar.driver.kube import client, kinds
from drawbar.driver.node import daemon as node
from drawbar.driver.node import settings as node_settings
from drawbar.driver.node.health import policy as health_policy
from drawbar.driver.node.treatment import hooks
from drawbar.fabric.grpc import server as fabric_server
from drawbar.mocks.cluster import deployment
from drawbar.mocks.fabric import configuration
from drawbar.mocks.fabric.simulation import SimulatedFabric
from drawbar.mocks.testing import worlds

PORTS = 4
RACK = {"example.com/rack": "r7", "example.com/firmware": {"version": "1.2.3"}, "example.com/shielded": True}
HEALTH = health_policy.Policy(interval_seconds=1, recovery_seconds=1)


class Lab(worlds.World):
    """The cluster as its users, its administrator and its electrician see it.

    Attributes:
        site: the control plane and the kubelets.
        path: the folder of the nodes and of the fabric.
        fabric: the simulated fabric.
        trees: the nodes' mocked /sys by name.
        claim_kind: ResourceClaim in the version that the cluster serves.
    """

    claim_kind = kinds.CLAIM

    def __init__(self, site, api, fabric, trees):
        super().__init__(api)
        self.site, self.path, self.fabric, self.trees = site, site.path, fabric, trees

    @property
    def server(self):
        """The API server double; a test that uses it is skipped on real components."""
        return self.site.server

    def hooks(self):
        """Return the settings of the nodes' hooks and bitstreams."""
        return hooks.Settings(hooks=self.path / "hooks", bitstreams=self.path / "bitstreams")

    async def until(self, read, holds, seconds=None):
        """Read until `holds` is true of the result; return the result."""
        return await super().until(read, holds, seconds or self.site.patience_seconds)

    async def takes_nothing_back(self):
        """Keep every device from becoming free again, until `await lift()` on the result."""
        return await self.site.takes_nothing_back(self.api)

    def start_controller(self, *, name="controller", **changes):
        options = controller_settings.Settings(
            kubeconfig=str(self.path / name),
            leader_election=False,
            http=controller_settings.Http(address="off"),
            **changes,
        )
        self.run(name, controller.run(options))

    def start_node(self, name, *, daemon=None, kubeconfig=None, **changes):
        """Start a daemon of a node, called as the node unless it is one of two."""
        home = self.path / name
        options = node_settings.Settings(
            node_name=name,
            kubeconfig=str(kubeconfig or self.path / f"{name}.kubeconfig"),
            kubelet_dir=home / "k",
            cdi_dir=home / "k" / "cdi",
            sysfs=home / "sys",
            uevents=f"unix:{home / 'uevents'}",
            **({"health": HEALTH, "initialise": self.hooks()} | changes),
        )
        self.run(daemon or name, node.run(options))

    def start_second(self, driver):
        """Start another driver's daemons, on the same nodes."""
        self.site.kubeconfig(self.path / "second", f"drawbar:drawbar-controller-{driver}")
        self.start_controller(name="second", driver=driver)
        for name in NODES:
            key = f"{name}-second"
            file = self.site.kubeconfig(self.path / key, f"drawbar:drawbar-node-{driver}", node=name)
            self.start_node(name, daemon=key, kubeconfig=file, driver=driver)

    async def operator(self):
        """Return the kubeconfig of an account that has the role `drawbar-operator`, and nothing else."""
        return await self.account("operator", "operator")

    async def account(self, name, role=None):
        """Return the kubeconfig of an account that has the role `drawbar-ROLE` and nothing else, or no role at all."""
        own = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": "drawbar"},
        }
        bodies = [own]
        if role is not None:
            manifest = deployment.folder() / "manifests" / f"{role}-rbac.yaml"
            cluster_role, *_ = yaml.safe_load_all(manifest.read_text())
            granted = cluster_role["metadata"]["name"]
            binding = {
                "apiVersion": cluster_role["apiVersion"],
                "kind": "ClusterRoleBinding",
                "metadata": {"name": granted},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": cluster_role["kind"],
                    "name": granted,
                },
                "subjects": [{"kind": own["kind"], **own["metadata"]}],
            }
            bodies += [cluster_role, binding]
        for body in bodies:
            # Real components stay for the next test.
            await self.api.patch(
                deployment.KINDS[body["kind"]],
                body["metadata"]["name"],
                body,
                content=client.Patch.APPLY,
                into=dict,
                namespace=body["metadata"].get("namespace"),
                manager="administrator",
            )
        return self.site.kubeconfig(self.path / name, f"drawbar:{name}")

    async def operate(self, *words):
        """Run a verb of `drawbar` as an operator; return its exit status, output and errors."""
        return await self.run_verb(await self.operator(), *words)

    async def run_verb(self, kubeconfig, *words):
        """Run a verb of `drawbar` in this process; return its exit status, output and errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = await asyncio.to_thread(main.main, [*words, "--kubeconfig", str(kubeconfig)])
        assert "Traceback" not in err.getvalue()
        return status, out.getvalue(), err.getvalue()

    async def change(self, kind, name, namespace=None, **content):
        await self.api.patch(
            kind,
            name,
            content,
            content=client.Patch.MERGE,
            into=dict,
            namespace=namespace,
            manager="administrator",
        )

    async def make_fabric(self, **policy):
        endpoint = f"unix:{self.path / 'f.sock'}"
        await self.create(
            kinds.FABRIC, "fab", spec={"adapter": "grpc", "endpoint": endpoint, "policy": policy}
        )

    async def pod(self, name, *, claims=1, tolerations=()):
        """Create a pod with claims from a template, for one disk each."""
        exactly = {"deviceClassName": "nvme.drawbar.dev"}
        if tolerations:
            exactly["tolerations"] = list(tolerations)
        devices = {"requests": [{"name": "disk", "exactly": exactly}]}
        await self.pod_from_template(name, devices, [f"disk-{number}" for number in range(claims)])

    async def pods(self):
        listing = await self.api.list_all(kinds.POD, into=dict, namespace="default")
        return {pod["metadata"]["name"]: pod for pod in listing.items}

    async def wait_until_running(self, name):
        """Wait until the pod runs; return the names of its node and of its devices."""
        await self.until(self.pods, lambda value: value[name].get("status", {}).get("phase") == "Running")
        pod = (await self.pods())[name]
        return pod["spec"]["nodeName"], await self.devices_of(name)

    async def wait_until_gone(self, name):
        await self.until(self.pods, lambda value: name not in value)

    async def claims(self, pod=None):
        """Return all claims, or those of one pod."""
        listing = await self.api.list_all(self.claim_kind, into=dict, namespace="default")
        return [
            claim
            for claim in listing.items
            if pod is None
            or any(owner["name"] == pod for owner in claim["metadata"].get("ownerReferences", ()))
        ]

    async def wait_until_allocated(self, pod):
        """Wait until all claims of the pod are allocated; return their allocations."""
        claims = await self.until(
            lambda: self.claims(pod), lambda value: value and all(map(allocation_of, value))
        )
        return [allocation_of(claim) for claim in claims]

    async def devices_of(self, pod):
        return sorted(
            result["device"]
            for claim in await self.claims(pod)
            for result in (allocation_of(claim) or {"devices": {"results": ()}})["devices"]["results"]
        )

    async def conditions_of(self, pod):
        """Return the true conditions of the pod's claims by device, with their reasons."""
        return {
            device["device"]: {
                condition["type"].removeprefix("drawbar.dev/"): condition["reason"]
                for condition in device["conditions"]
                if condition["status"] == "True"
            }
            for claim in await self.claims(pod)
            for device in claim.get("status", {}).get("devices", ())
        }

    async def slices(self):
        """Return the specs of the slices that the controller has published for the fabric."""
        listing = await self.api.list_all(kinds.SLICE, into=dict)
        return [
            resource_slice["spec"]
            for resource_slice in listing.items
            if resource_slice["spec"]["pool"]["name"].startswith("fab")
        ]

    async def taints(self, device):
        """Return the device's taints in either form, as `key=value:effect`; None if it is not published."""
        specs = await self.slices()
        if all(entry["name"] != device for spec in specs for entry in spec.get("devices", ())):
            return None
        return self.taints_in(specs, device)

    @staticmethod
    def taints_in(specs, device):
        """Return a device's taints in these slices, in whichever form, as `key=value:effect`."""
        published = [entry for spec in specs for entry in spec.get("devices", ()) if entry["name"] == device]
        taints = [taint for entry in published for taint in entry.get("taints", ())]
        taints += [
            entry["taint"] for spec in specs for entry in spec.get("taints", ()) if entry["device"] == device
        ]
        return {
            f"{taint['key'].removeprefix('drawbar.dev/')}={taint.get('value', '')}:{taint['effect']}"
            for taint in taints
        }

    async def wait_for_taints(self, device, *taints):
        """Wait until the device has these taints and no others."""
        await self.until(lambda: self.taints(device), lambda value: value == set(taints))

    async def version(self):
        """Return the newest version that the API server has."""
        return (await self.api.list_all(self.claim_kind, into=dict)).resource_version

    async def history(self, kind, since):
        """Return the changes of these objects since that version, in order, as (version, object)."""
        listing = await self.api.list_all(kind, into=dict)
        newest = max(int(entry["metadata"]["resourceVersion"]) for entry in listing.items)
        changes = self.api.watch(kind, into=dict, resource_version=since)
        past = []
        async with contextlib.aclosing(changes), asyncio.timeout(120):
            async for change in changes:
                past.append((int(change.resource_version), change.item))
                if past[-1][0] >= newest:
                    break
        return past

    async def changes(self, since):
        """Count the changes since that version of the present attachments and claims."""
        count = 0
        for kind in (kinds.ATTACHMENT, self.claim_kind):
            if (await self.api.list_all(kind, into=dict)).items:
                count += len(await self.history(kind, since))
        return count

    async def attachments(self):
        listing = await self.api.list_all(kinds.ATTACHMENT, into=dict)
        return {attachment["spec"]["device"]: attachment for attachment in listing.items}

    async def list_connections(self):
        """Return the ids of the devices that the fabric has connected, with their hosts."""
        inventory = await self.fabric.devices()
        return {
            device.id: device.connection.host_id
            for device in inventory.devices
            if device.connection is not None
        }

    async def notes(self, reason):
        listing = await self.api.list_all(kinds.EVENT, into=dict, namespace="default")
        return [event["note"] for event in listing.items if event["reason"] == reason]

    async def wait_for_event(self, reason, words=""):
        """Wait for an Event with this reason and these words: it comes by a request of its own."""
        await self.until(lambda: self.notes(reason), lambda notes: any(words in note for note in notes))

    async def wait_for_event_about(self, pod, reason):
        """Wait for an Event with this reason about the pod."""
        await self.until(lambda: self.reasons(pod), lambda reasons: reason in reasons)

    async def reasons(self, pod):
        listing = await self.api.list_all(kinds.EVENT, into=dict, namespace="default")
        return {event["reason"] for event in listing.items if event["regarding"]["name"] == pod}

    async def is_free(self, device):
        """Wait until the device is back: no object, no connection, nothing in a slot, no CDI file."""
        await self.until(self.attachments, lambda value: device not in value)
        assert device not in await self.list_connections()
        in_use = len(await self.list_connections())
        drivers = [tree.root / "bus/pci/drivers/nvme" for tree in self.trees.values()]
        assert sum(len(list(folder.glob("0000:*"))) for folder in drivers) <= in_use

    @property
    def cdi_files(self):
        return [file.name for name in NODES for file in (self.path / name / "k" / "cdi").glob("*.json")]


def allocation_of(claim):
    return (claim.get("status") or {}).get("allocation")


def fabric_of(path, trees, devices, ports, changes):
    described = {
        "hosts": [
            {"id": f"host-{name}", "name": name, "ports": ports.get(name, PORTS), "sysfs": str(tree.root)}
            for name, tree in trees.items()
        ],
        "enclosures": [
            {
                "id": "enc",
                "devices": [
                    worlds.disk(number) | {"attributes": RACK | {"example.com/position": number}}
                    for number in range(devices)
                ],
            }
        ],
    }
    path.write_text(json.dumps(described | changes))
    return configuration.load(path)


@contextlib.asynccontextmanager
async def lab(
    profile,
    *,
    gates=None,
    cluster=Lab,
    devices=2,
    ports=None,
    timeout=600,
    patience=None,
    policy=None,
    visible=60,
    node=None,
    controller=None,
    **fabric_changes,
):
    """Run a cluster with a Fabric object; stop all its daemons at the end.

    Args:
        profile: of the API server double.
        gates: of it, besides those of the profile.
        cluster: the class of what is given.
        devices: how many disks the fabric has.
        ports: by node how many its host has, where they are not the usual number.
        timeout: the scheduler's patience with binding conditions, in seconds.
        patience: what the controller takes for that; None: the same.
        policy: of the Fabric object; None: the usual, without probation.
        visible: the node daemons' patience with a device that was attached, in seconds.
        node: further settings of the node daemons.
        controller: further settings of the controller.
        fabric_changes: what else is in the fabric's configuration.
    """
    failure = None
    options = sites.Options(profile=profile, gates=gates or {}, binding_timeout_seconds=timeout)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        site = await enter(sites.open_site(options))
        path = site.path
        trees = worlds.trees(path, NODES)
        described = fabric_of(path / "fabric.json", trees, devices, ports or {}, fabric_changes)
        for tree in trees.values():
            await enter(tree.reacting())
        fabric = await enter(SimulatedFabric.running(described))
        await enter(fabric_server.serving(fabric, f"unix:{path / 'f.sock'}", name="sim", version="1"))
        site.kubeconfig(path / "controller", "drawbar:drawbar-controller")
        for name in NODES:
            site.kubeconfig(path / f"{name}.kubeconfig", "drawbar:drawbar-node", node=name)
        api = await enter(client.connecting(site.connection))
        harness = cluster(site, api, fabric, trees)
        stack.push_async_callback(harness.stop_all)
        stack.push_async_callback(site.tidy, api)
        for name in NODES:
            harness.start_node(name, visible_timeout_seconds=visible, **(node or {}))
        harness.start_controller(binding_timeout_seconds=patience or timeout, **(controller or {}))
        await harness.make_fabric(**({"probationSeconds": 0} if policy is None else policy))
        try:
            yield harness
        except Exception as error:  # noqa: BLE001 - raised again below, outside the task groups
            failure = error
    if failure is not None:
        raise failure


async def drawbar_fabric(cluster, *words):
    """Run `drawbar fabric` as an administrator beside the daemons, and return its exit status."""
    chosen = ("--fabric", "fab", "--kubeconfig", str(cluster.site.admin), "--yes")
    return await asyncio.to_thread(main.main, ["fabric", *words, *chosen])
