"""Real components for the flows: kept from test to test, and cleaned between them."""

import asyncio
import contextlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from tests.driver.flows import sites

from drawbar.driver.kube import client, config, errors, kinds
from drawbar.mocks.apiserver import profiles
from drawbar.mocks.cluster import deployment

sys.path.insert(0, str(Path(__file__).parents[3] / "hil-tests"))

from realcluster import binaries, control_plane, kubelets
from realcluster.stages import LOGS

TIDY_SECONDS = 60.0
CONFIGURABLE_TIMEOUT = 36
"""The minor release from which the scheduler takes a binding timeout."""
PATIENT_SECONDS = 60
"""Tests that give the scheduler at least so long need it to wait, not to give up."""
POLL_SECONDS = 0.2
OF_THE_DOUBLE = "uses what only the API server double has: faults on purpose, or its record of writes"
NO_DETACH = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-detach"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["drawbar.dev"],
                    "apiVersions": ["v1alpha1"],
                    "operations": ["DELETE"],
                    "resources": ["deviceattachments"],
                },
                # Its refusal shows that the policy is in force, which takes a moment.
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["configmaps"],
                },
            ]
        },
        "matchConditions": [
            {"name": "ours", "expression": "object == null || object.metadata.name == 'no-detach'"}
        ],
        "validations": [{"expression": "false", "message": "nothing is taken back"}],
    },
}
PROBE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "no-detach"}}
CLAIMS_POLICY = "drawbar-controller-claims"
AT_ONCE = re.compile(r'\$atOnce := printf "(.+)" \$driver')
OF_THE_SCHEDULER = "the allocation of a claim is the scheduler's"
NO_DETACH_BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "no-detach"},
    "spec": {"policyName": "no-detach", "validationActions": ["Deny"]},
}


class Components:
    """A control plane and its kubelets, which run."""

    def __init__(self, programs, folder, gates):
        self.gates, self.folder = gates, folder
        self.deployed = False
        self.stack = contextlib.ExitStack()
        with self.stack as stack:
            self.plane = stack.enter_context(
                control_plane.ControlPlane.running(programs, folder, gates=gates, nodes=sites.NODES)
            )
            for name in sites.NODES:
                stack.enter_context(kubelets.Kubelet.running(self.plane, name, folder=folder / name))
            self.stack = stack.pop_all()

    def close(self):
        self.stack.close()


class Kept:
    """What this process runs now; at most one."""

    def __init__(self):
        self.components = None
        self.folder = None
        self.count = 0

    def ensure_components(self, programs, gates):
        """Return components with these gates; start them where none or others run."""
        if self.components is not None and self.components.gates != gates:
            self.close()
        if self.components is None:
            self.count += 1
            named = os.environ.get(LOGS)
            # Paths of sockets must be short.
            base = Path(named) if named else Path(tempfile.mkdtemp(prefix="drawbar-k8s-"))
            # Each process of pytest-xdist has its own.
            self.folder = base / f"{os.environ.get('PYTEST_XDIST_WORKER', '')}{self.count}"
            self.components = Components(programs, self.folder, gates)
        return self.components

    def close(self):
        if self.components is not None:
            self.components.close()
            self.components = None
            if LOGS not in os.environ:
                shutil.rmtree(self.folder.parent, ignore_errors=True)


KEPT = Kept()


def close():
    """Stop the components that were kept running."""
    KEPT.close()


class Real:
    """The seam of `sites.Doubles` on real components."""

    patience_seconds = 150.0

    def __init__(self, components, release):
        self.plane, self.release = components.plane, release
        self.path = components.folder
        self.admin = self.plane.admin
        self.connection = config.from_kubeconfig(self.admin)

    @property
    def server(self):
        pytest.skip(OF_THE_DOUBLE)

    def kubeconfig(self, path, account, *, node=None):
        """Ask for a token of a service account, and write a kubeconfig."""
        return self.plane.service_account_kubeconfig(path, account, node=node)

    async def takes_nothing_back(self, api):
        """Refuse every deletion of an attachment by an admission policy."""
        await api.create(kinds.ADMISSION_POLICY, NO_DETACH, into=dict)
        await api.create(kinds.ADMISSION_BINDING, NO_DETACH_BINDING, into=dict)
        async with asyncio.timeout(TIDY_SECONDS):
            while await is_admitted(api):  # noqa: ASYNC110 - the API server is another process
                await asyncio.sleep(POLL_SECONDS)
        return Held(api)

    async def allow_immediate(self, api):
        """Widen the policy on claims as the chart does where immediate allocation is on."""
        template = deployment.folder() / "drawbar" / "templates" / "policies.yaml"
        at_once = AT_ONCE.search(template.read_text())[1].replace("%s", "drawbar.dev")
        policy = await api.read(kinds.ADMISSION_POLICY, CLAIMS_POLICY, into=dict)
        rest = [
            validation
            for validation in policy["spec"]["validations"]
            if validation["message"] != OF_THE_SCHEDULER
        ]
        same = "object.?status.?allocation == oldObject.?status.?allocation"
        wider = [*rest, {"expression": f"{same} || {at_once}", "message": OF_THE_SCHEDULER}]
        await api.patch(
            kinds.ADMISSION_POLICY,
            CLAIMS_POLICY,
            {"spec": {"validations": wider}},
            content=client.Patch.MERGE,
            into=dict,
        )

    async def tidy(self, api):
        """Remove the test's objects: pods first, while our daemons still run to release their devices."""
        for kind in (kinds.ADMISSION_BINDING, kinds.ADMISSION_POLICY):
            await discard(api, kind, "no-detach")
        claim, template = (
            replace_version(kind, self.release) for kind in (kinds.CLAIM, kinds.CLAIM_TEMPLATE)
        )
        for kind in (kinds.POD, claim, template):
            await clear(api, kind, "default")
        with contextlib.suppress(TimeoutError):
            await wait_until_gone(api, kinds.POD, "default")
            await wait_until_gone(api, claim, "default")
            await wait_until_gone(api, kinds.ATTACHMENT)
        await clear(api, kinds.FABRIC)
        with contextlib.suppress(TimeoutError):
            await wait_until_gone(api, kinds.FABRIC)
            await wait_until_gone(api, kinds.SLICE)


def replace_version(kind, release):
    """Return a kind of `resource.k8s.io` in the version of the release."""
    return msgspec.structs.replace(kind, version=release.dynamic_version)


async def is_admitted(api):
    """Return whether the probe of the policy against detaching is let through."""
    try:
        path = kinds.CONFIG_MAP.path(namespace="default")
        await api.request("POST", path, {"dryRun": "All"}, body=PROBE)
    except errors.KubeError:
        return False
    return True


class Held:
    """A refusal that can be lifted."""

    def __init__(self, api):
        self._api = api

    async def lift(self):
        for kind in (kinds.ADMISSION_BINDING, kinds.ADMISSION_POLICY):
            await discard(self._api, kind, "no-detach")


def gates_for(profile, gates):
    """Return the gates that differ from the release's default."""
    usual = profiles.profile(profile).gates
    return {name: on for name, on in gates.items() if usual.get(name) != on}


@contextlib.asynccontextmanager
async def running_cluster(options, folder):
    programs = binaries.find(folder)
    release = profiles.profile(options.profile)
    if options.profile not in (programs.release.name, f"{programs.release.name}-classic"):
        pytest.skip(f"this is of {options.profile}, and the components are {programs.release}")
    if why := kubelets.missing_root():
        pytest.skip(why)
    gates = gates_for(options.profile, options.gates)
    if release.classic:
        gates = dict.fromkeys(("DynamicResourceAllocation", "DRAControlPlaneController"), True)
    components = KEPT.ensure_components(programs, gates)
    timeout = options.binding_timeout_seconds
    wanted = None if timeout == sites.USUAL_TIMEOUT_SECONDS else timeout
    if wanted is not None and programs.release.minor < CONFIGURABLE_TIMEOUT:
        if wanted < PATIENT_SECONDS:
            pytest.skip(
                f"the scheduler of {programs.release} waits 600 s for binding conditions, and no less"
            )
        wanted = None
    if components.plane.settings.binding_timeout_seconds != wanted:
        components.plane.schedule_with(wanted)
    site = Real(components, release)
    async with client.connecting(site.connection) as api:
        if not components.deployed:
            await deployment.apply(api, policies=True, version=release.dynamic_version)
            components.deployed = True
        await sweep(api, site.path, release)
        try:
            yield site
        finally:
            await sweep(api, site.path, release)


async def sweep(api, path, release):
    """Remove by force all leftovers of our daemons, which have ended."""
    for kind, namespace in (
        (kinds.POD, "default"),
        (replace_version(kinds.CLAIM, release), "default"),
        (kinds.ATTACHMENT, None),
        (kinds.MAINTENANCE, None),
        (kinds.FABRIC, None),
        (kinds.HEALTH_POLICY, None),
        (replace_version(kinds.SLICE, release), None),
        *((kind, None) for kind in kinds.TAINT_RULES),
    ):
        for name in await names(api, kind, namespace):
            bare = {"metadata": {"finalizers": None}}
            with contextlib.suppress(errors.KubeError):
                await api.patch(kind, name, bare, content=client.Patch.MERGE, into=dict, namespace=namespace)
            await discard(api, kind, name, namespace, at_once=True)
    theirs = {
        document["metadata"]["name"]
        for document in deployment.documents(deployment.folder(), version=release.dynamic_version)
        if document["kind"] == "DeviceClass"
    }
    classes = replace_version(kinds.DEVICE_CLASS, release)
    for name in await names(api, classes):
        if name not in theirs:
            await discard(api, classes, name)
    await clear(api, kinds.EVENT, "default")
    for node in sites.NODES:
        home = path / node
        for rest in ("sys", "k/cdi", "k/plugins/drawbar.dev"):
            shutil.rmtree(home / rest, ignore_errors=True)
        (home / "k" / "cdi").mkdir(parents=True, exist_ok=True)
        (home / "uevents").unlink(missing_ok=True)


async def names(api, kind, namespace=None):
    try:
        listing = await api.list_all(kind, into=dict, namespace=namespace)
    except errors.NotFound:
        return []
    return [entry["metadata"]["name"] for entry in listing.items]


async def clear(api, kind, namespace=None):
    for name in await names(api, kind, namespace):
        await discard(api, kind, name, namespace)


async def wait_until_gone(api, kind, namespace=None):
    async with asyncio.timeout(TIDY_SECONDS):
        while await names(api, kind, namespace):  # noqa: ASYNC110 - the API server is another process
            await asyncio.sleep(POLL_SECONDS)


async def discard(api, kind, name, namespace=None, *, at_once=False):
    body = {"apiVersion": "v1", "kind": "DeleteOptions"} | ({"gracePeriodSeconds": 0} if at_once else {})
    with contextlib.suppress(errors.NotFound):
        await api.request("DELETE", kind.path(namespace=namespace, name=name), body=body)
