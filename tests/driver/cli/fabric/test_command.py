"""`drawbar fabric` as it is typed: on a file, over gRPC and Redfish, and on a Fabric object."""

import socket

import pytest
from tests.scenes import documents

from drawbar.driver.kube import kinds


def test_the_installed_adapters_are_listed_with_the_parameters_of_their_schemas(drawbar_command):
    status, out, _ = drawbar_command("adapters")
    assert status == 0
    assert "pollSeconds" in out
    assert "no parameters" in out
    listed = {item["name"]: item for item in documents.content(drawbar_command("adapters", "-o", "json")[1])}
    assert "profile" in listed["redfish"]["parameters"]["properties"]
    assert listed["grpc"]["parameters"]["properties"] == {}


def test_a_check_shows_hosts_devices_and_oddities(drawbar_command, grpc_file):
    status, out, err = drawbar_command("check", "--config", grpc_file)
    assert (status, err) == (0, "")
    assert "credentials: none" in out
    assert "gpu-1" in out
    assert "host-1" in out
    document = documents.content(drawbar_command("check", "--config", grpc_file, "-o", "json")[1])
    assert [device["id"] for device in document["devices"]] == ["gpu-1", "gpu-2"]
    assert document["capabilities"]["exactDevice"] is True
    assert document["odd"] == []


@pytest.mark.drawbar(
    fabric={
        "hosts": [{"id": "host-1"}],
        "enclosures": [
            {"id": "e", "devices": [{"id": "a", "class": "gpu", "model": "\x1b[31mred", "serial": ""}]}
        ],
    }
)
def test_control_characters_of_a_fabric_manager_do_not_reach_the_terminal(drawbar_command, grpc_file):
    _, out, _ = drawbar_command("devices", "--config", grpc_file)
    assert "\x1b" not in out
    assert "?[31mred" in out


def test_devices_and_hosts_of_a_redfish_manager_are_listed_as_the_user_of_the_files(
    drawbar_command, redfish_file
):
    status, out, _ = drawbar_command("devices", "--config", redfish_file, "-o", "json")
    assert status == 0
    assert [device["serial"] for device in documents.content(out)] == ["S1"]
    status, out, _ = drawbar_command("hosts", "--config", redfish_file)
    assert status == 0
    assert "16 of 16" in out
    assert "credentials: user drawbar" in drawbar_command("check", "--config", redfish_file)[1]


@pytest.mark.parametrize("redfish_file", [["broken-member"]], indirect=True)
def test_a_device_in_doubt_is_not_told_to_be_missing(drawbar_command, redfish_file):
    part = "/redfish/v1/Chassis/e1/PCIeDevices/gpu-1 cannot be read: the service answers with 500"
    status, out, err = drawbar_command("devices", "--config", redfish_file)
    assert (status, out.strip()) == (3, "The fabric manager shows no device.")
    assert f"warning: {part}; its devices are in doubt" in err
    status, out, _ = drawbar_command("check", "--config", redfish_file)
    assert status == 0
    assert f"{part}; its devices are in doubt" in " ".join(out.split())
    assert "lists no device" not in out
    for words in (
        ("attach", "PCIe.gpu-1", "h1", "--yes"),
        ("detach", "PCIe.gpu-1", "--yes"),
        ("conformance", "--devices", "PCIe.gpu-1", "--hosts", "h1,h2", "--yes"),
    ):
        status, _, err = drawbar_command(*words, "--config", redfish_file)
        assert status == 1
        assert f"device PCIe.gpu-1 is not listed, and {part}; look at the fabric manager" in err


def test_a_wrong_password_is_one_sentence(drawbar_command, redfish_file, tmp_path):
    (tmp_path / "password").write_text("another wrong horse")
    status, out, err = drawbar_command("check", "--config", redfish_file)
    assert (status, out) == (1, "")
    assert "UNAUTHENTICATED" in err
    assert "another wrong horse" not in err
    assert len(err.splitlines()) == 1


def test_a_manager_that_is_not_there_is_one_sentence_within_the_deadline(
    drawbar_command, config_file, tmp_path
):
    path = config_file({"adapter": "grpc", "endpoint": f"unix:{tmp_path}/no.sock"})
    status, _, err = drawbar_command("check", "--config", path, "--timeout", 5)
    assert status == 1
    assert len(err.splitlines()) == 1


def test_a_stalled_manager_ends_the_command_at_its_deadline(drawbar_command, config_file, tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        path = config_file({"adapter": "grpc", "endpoint": f"unix:{tmp_path}/s"})
        status, _, err = drawbar_command("check", "--config", path, "--timeout", 1.5)
    assert status == 1
    assert "not finished within 1.5 s" in err


def test_a_fabric_of_the_cluster_is_read_with_its_secret_nodes_and_attachments(drawbar_command, cluster):
    at = ("--kubeconfig", cluster.kubeconfig)
    status, out, _ = drawbar_command("hosts", "rack-1", *at, "-o", "json")
    assert status == 0
    assert [(host["id"], host["node"]) for host in documents.content(out)] == [("host-1", "node-1")]
    document = documents.content(drawbar_command("check", "rack-1", *at, "-o", "json")[1])
    assert document["credentials"] == "a token"
    assert any("the controller is not connected" in sentence for sentence in document["odd"])


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_on_a_fabric_of_the_cluster_attaches_and_detaches_nothing(drawbar_command, cluster, how):
    at = ("--fabric", "rack-1", "--kubeconfig", cluster.kubeconfig, f"--dry-run={how}")
    status, out, err = drawbar_command("attach", "gpu-1", "node-1", *at)
    assert (status, out) == (0, "Device gpu-1 would be attached to host host-1.\n"), err
    assert not list_attachments(cluster)
    body = {
        "apiVersion": kinds.ATTACHMENT.api_version,
        "kind": kinds.ATTACHMENT.kind,
        "metadata": {"name": "rack-1.gpu-1"},
        "spec": {
            "fabric": "rack-1",
            "deviceID": "gpu-1",
            "driver": "drawbar.dev",
            "pool": "rack-1/e",
            "device": "gpu-1",
            "nodeName": "node-1",
            "hostID": "host-1",
            "identity": {"deviceClass": "gpu"},
        },
    }
    cluster(lambda api: api.create(kinds.ATTACHMENT, body, into=dict))
    status, out, err = drawbar_command("detach", "gpu-1", "--force", *at)
    assert (status, out) == (0, "Device gpu-1 would be detached.\n"), err
    assert "only the next node erases" in err
    (stored,) = list_attachments(cluster)
    assert "deletionTimestamp" not in stored["metadata"]
    assert "annotations" not in stored["metadata"]


def list_attachments(cluster):
    return cluster(lambda api: api.list_all(kinds.ATTACHMENT, into=dict)).items


def test_a_fabric_that_is_not_there_or_a_secret_that_is_missing_is_a_sentence(drawbar_command, cluster):
    at = ("--kubeconfig", cluster.kubeconfig)
    status, _, err = drawbar_command("check", "rack-2", *at)
    assert status == 1
    assert "there is no Fabric rack-2" in err
    cluster(lambda api: api.delete(kinds.SECRET, "rack-1", namespace="drawbar"))
    status, _, err = drawbar_command("check", "rack-1", *at)
    assert status == 1
    assert "Secret drawbar/rack-1 of the Fabric does not exist" in err


def test_a_fabric_and_a_file_together_or_none_of_them_are_refused(drawbar_command, config_file):
    path = config_file({"adapter": "grpc", "endpoint": "unix:/x"})
    assert drawbar_command("check")[0] == 2
    assert drawbar_command("check", "rack-1", "--config", path)[0] == 2
