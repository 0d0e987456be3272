"""The command lines and files of the components, by release."""

from pathlib import Path

import pytest
from realcluster import binaries, kubelets, programs


def release(text):
    return binaries.Release.parse(text)


def settings(version="1.36.2", etcd="3.5.16", **changes):
    installed = binaries.Binaries(
        folder=Path("/bin-dir"),
        release=release(version),
        etcd=Path("/usr/bin/etcd"),
        etcd_release=release(etcd),
        has_kubelet=True,
    )
    ports = programs.Ports(apiserver=1, etcd=2, etcd_peer=3)
    return programs.Settings(binaries=installed, folder=Path("/state"), ports=ports, **changes)


@pytest.mark.parametrize(
    ("version", "gates", "served"),
    [
        (
            "1.31.14",
            {"DynamicResourceAllocation", "DRAControlPlaneController"},
            "resource.k8s.io/v1alpha3=true",
        ),
        (
            "1.34.9",
            {"DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus", "DRADeviceTaints"},
            "resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true",
        ),
        (
            "1.36.2",
            {"DRADeviceTaintRules"},
            "resource.k8s.io/v1beta2=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1alpha3=true",
        ),
    ],
)
def test_each_release_gets_the_gates_and_versions_off_by_default(version, gates, served):
    assert set(programs.default_gates(release(version))) == gates
    assert programs.runtime_config(release(version)) == served
    assert programs.resource_version(release(version)) == ("v1alpha3" if version == "1.31.14" else "v1")
    # The contract suite has no rules for what was alpha in 1.34.
    assert set(programs.contract_gates(release(version))) == (set() if version == "1.34.9" else gates)


@pytest.mark.parametrize(("version", "seen"), [("1.36.2", False), ("1.37.0", True)])
def test_the_scheduler_of_1_36_runs_without_the_gate_that_ends_it(version, seen):
    made = settings(gates={"DRADeviceTaintRules": True, "Other": True}, version=version)
    (gates,) = [argument for argument in programs.scheduler(made) if argument.startswith("--feature-gates=")]
    assert ("DRADeviceTaintRules=true" in gates) is seen
    assert "Other=true" in gates
    assert "DRADeviceTaintRules=true" in " ".join(programs.controller_manager(made))


def test_everything_listens_on_loopback_only_and_no_plugin_or_controller_is_turned_off():
    made = settings(gates={"B": False, "A": True})
    commands = [
        programs.etcd(made),
        programs.apiserver(made),
        programs.controller_manager(made),
        programs.scheduler(made),
    ]
    for command in commands:
        assert not any("0.0.0.0" in argument or "disable" in argument for argument in command)
        assert not any(argument.startswith("--controllers") for argument in command)
    assert {"--bind-address=127.0.0.1", "--enable-admission-plugins=NodeRestriction"} <= set(commands[1])
    assert all("--feature-gates=A=true,B=false" in command for command in commands[1:])
    assert all("--secure-port=0" in command for command in commands[2:])


def test_static_users_are_in_the_groups_of_a_cluster():
    text = programs.tokens({"admin": "t1", "system:node:node-1": "t2", "system:kube-scheduler": "t3"})
    assert set(text.splitlines()) == {
        't1,admin,admin,"system:masters"',
        't2,system:node:node-1,system:node:node-1,"system:nodes"',
        't3,system:kube-scheduler,system:kube-scheduler,""',
    }


def test_the_schedulers_patience_is_configured_where_it_is_asked_for():
    assert "profiles" not in programs.scheduler_configuration(settings())
    (profile,) = programs.scheduler_configuration(settings(binding_timeout_seconds=9))["profiles"]
    assert profile["pluginConfig"] == [{"name": "DynamicResources", "args": {"bindingTimeout": "9s"}}]


def test_mounts_below_a_folder_are_found_the_deepest_first():
    text = "\n".join(
        f"1 1 0:1 / {point} rw - tmpfs tmpfs rw"
        for point in ("/run", "/run/k", "/run/k/pods/a", "/run/k/pods/a/b\\040c", "/run/kk/d")
    )
    assert kubelets.mounts_below(Path("/run/k"), text) == ["/run/k/pods/a/b c", "/run/k/pods/a", "/run/k"]
