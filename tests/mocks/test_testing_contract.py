"""The contract suite as it runs against a foreign cluster: by a kubeconfig alone, and with nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drawbar.driver.kube import client, config
from drawbar.driver.kube.kinds import Kind
from drawbar.mocks.testing import processes

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "mocks" / "contract"
SAMPLE = (
    "a_claim_is_allocated_reserved_and_protected or two_managers_keep_their_conditions or the_right_for_the_own_node "
    "or printer_columns or a_policy_refuses or namespace_takes_everything or foreground_deletion or is_given_up "
    "or evicted_when_its_device"
)
KINDS = (
    Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False),
    Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False),
    Kind(group="", version="v1", kind="Pod", plural="pods"),
    Kind(group="", version="v1", kind="ConfigMap", plural="configmaps"),
    *(
        Kind(
            group="resource.k8s.io", version="v1", kind=kind, plural=f"{kind.lower()}s", namespaced=namespaced
        )
        for kind, namespaced in (("ResourceClaim", True), ("ResourceSlice", False))
    ),
    Kind(group="resource.k8s.io", version="v1", kind="DeviceClass", plural="deviceclasses", namespaced=False),
    Kind(group="rbac.authorization.k8s.io", version="v1", kind="Role", plural="roles"),
    Kind(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        namespaced=False,
    ),
)


@pytest.fixture
def kubeconfig(tmp_path):
    """Run a server without telling the suite that it is a double; yield its kubeconfig."""
    folder = ("--kubeconfig-dir", str(tmp_path))
    with processes.running("apiserver", tmp_path / "apiserver.log", *folder) as ready:
        options = ("--kubeconfig", ready["kubeconfig"], "--poll-seconds", "0.1")
        with processes.running("scheduler", tmp_path / "scheduler.log", *options):
            yield ready["kubeconfig"]


async def list_object_names(kubeconfig):
    """Return the names of all objects that the suite could leave behind."""
    async with client.connecting(config.load(kubeconfig)) as api:
        return {
            f"{kind.plural}/{item['metadata']['name']}"
            for kind in KINDS
            for item in (await api.list_all(kind, into=dict)).items
        }


async def test_the_suite_leaves_a_cluster_as_it_was(kubeconfig):
    before = await list_object_names(kubeconfig)
    outcome = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop
        [
            str(Path(sys.executable).with_name("pytest")),
            "-q",
            "-p",
            "no:cacheprovider",
            str(SUITE),
            "-k",
            SAMPLE,
        ],
        env={**os.environ, "DRAWBAR_CONTRACT_KUBECONFIG": kubeconfig},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert outcome.returncode == 0, outcome.stdout
    assert " passed" in outcome.stdout
    assert " deselected" in outcome.stdout
    assert await list_object_names(kubeconfig) == before
