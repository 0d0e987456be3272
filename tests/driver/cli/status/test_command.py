"""`drawbar status` against an API server: what it shows, what it may not read, and exit statuses."""

import json
import re

import pytest
import yaml

from drawbar.driver.kube import client, kinds


def test_the_whole_cluster_is_a_tree(status_command, cluster):
    status, out, err = status_command()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    for words in (
        ("fabric rack-1", "Connected", "2 devices: 1 in use, 1 tainted"),
        ("enclosure enc-1",),
        ("gpu-1", "Ready", "gpu A100 S1"),
        ("node node-1",),
        ("claim default/train", "Reserved"),
        ("pod train-0",),
        ("gpu-2", "Free", "drawbar.dev/maintenance:NoSchedule"),
        ("own devices of node node-1", "1 in use"),
        ("disk-9", "InUse", "nvme"),
        ("claim default/local",),
    ):
        assert any(all(word in line for word in words) for line in lines), words


def test_the_wide_form_names_host_port_and_slot(status_command, cluster):
    connection = {"status": {"connection": {"port": "2", "slot": "3"}}}
    cluster(
        lambda api: api.patch(
            kinds.ATTACHMENT,
            "rack-1.gpu-1",
            connection,
            content=client.Patch.MERGE,
            subresource="status",
            into=dict,
        )
    )
    out = " ".join(status_command("-o", "wide")[1].replace("│", " ").split())
    assert "id gpu-1 at host-1, port 2, slot 3" in out


def test_documents_hold_the_same_in_json_and_yaml(status_command, cluster):
    document = json.loads(status_command("-o", "json")[1])
    assert yaml.safe_load(status_command("-o", "yaml")[1]) == document
    assert document["kind"] == "Status"
    assert document["apiVersion"].startswith("cli.drawbar.dev/")
    (fabric,) = document["fabrics"]
    (enclosure,) = fabric["enclosures"]
    first, second = enclosure["devices"]
    assert (first["state"], first["node"], first["serial"]) == ("Ready", "node-1", "S1")
    assert [claim["pods"] for claim in first["claims"]] == [["train-0"]]
    assert (second["state"], second["claims"]) == ("Free", [])
    assert (first["category"], second["category"], second["problems"]) == ("used", "blocked", [])
    assert [device["name"] for device in document["local"][0]["devices"]] == ["disk-9"]


@pytest.mark.parametrize(
    ("target", "devices"),
    [
        ("fabric/rack-1", ["gpu-1", "gpu-2"]),
        ("node/node-1", ["gpu-1", "disk-9"]),
        ("claim/train", ["gpu-1"]),
        ("pod/train-0", ["gpu-1"]),
        ("claim/next", []),
        ("claims/train", ["gpu-1"]),
        ("po/train-0", ["gpu-1"]),
        ("device/gpu-2", ["gpu-2"]),
        ("enclosure/rack-1/enc-1", ["gpu-1", "gpu-2"]),
        ("da/rack-1.gpu-1", ["gpu-1"]),
    ],
)
def test_one_object_is_shown_alone(status_command, cluster, target, devices):
    status, out, err = status_command(target, "-o", "json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    shown = [
        device
        for fabric in document["fabrics"]
        for enclosure in fabric["enclosures"]
        for device in enclosure["devices"]
    ]
    shown += [device for local in document["local"] for device in local["devices"]]
    assert [device["name"] for device in shown] == devices


def test_a_claim_without_a_device_waits_for_the_scheduler(status_command, cluster):
    status, out, _ = status_command("claim/next")
    assert status == 0
    assert "claim default/next waits" in out
    assert "no pod uses the claim yet" in out
    assert "drawbar explain claim/next -n default" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fabric/none",), "there is no fabric none; there is rack-1"),
        (("node/none",), "there is no node none"),
        (("claim/none",), "there is no ResourceClaim none in namespace default; -n names another namespace"),
        (("pod/train-0", "-n", "elsewhere"), "there is no pod train-0 in namespace elsewhere"),
    ],
)
def test_a_name_that_is_not_there_is_one_sentence(status_command, cluster, words, message):
    status, out, err = status_command(*words)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [("gpu-1",), ("claim/",), ("thing/x",), ("pod", "a", "b"), ("-o", "xml")])
def test_a_wrong_command_line_is_refused(status_command, words):
    assert status_command(*words)[0] == 2


def test_without_a_cluster_one_sentence_is_printed(status_command, tmp_path):
    status, out, err = status_command("--kubeconfig", tmp_path / "none")
    assert (status, out) == (1, "") or status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_without_the_crds_the_rest_is_shown(status_command, drawbar_apiserver, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(drawbar_apiserver.kubeconfig))
    status, out, err = status_command()
    assert (status, out) == (3, "")
    assert "warning: fabrics cannot be read" in err
    assert "install Drawbar's chart" in err


@pytest.mark.parametrize(
    ("phase", "visible", "state"),
    [("Ready", "True", "Ready"), ("Attached", None, "Attached"), ("Pending", None, "Pending")],
)
def test_a_connection_that_the_manager_forgot_is_shown_with_its_date(
    status_command, cluster, phase, visible, state
):
    forgotten = "the fabric manager no longer shows this connection: since 2026-01-02T03:04:05Z it lists gpu-1 as free"
    stamp = "2026-01-01T00:00:00Z"
    conditions = [
        {
            "type": "Attached",
            "status": "False" if phase == "Pending" else "True",
            "reason": "ConnectionNotShown",
            "message": forgotten,
            "lastTransitionTime": stamp,
        }
    ]
    if visible:
        seen = {"type": "Visible", "status": visible, "reason": "R", "message": ""}
        conditions.append(seen | {"lastTransitionTime": stamp})
    change = {"status": {"phase": phase, "conditions": conditions}}
    cluster(
        lambda api: api.patch(
            kinds.ATTACHMENT,
            "rack-1.gpu-1",
            change,
            content=client.Patch.MERGE,
            into=dict,
            subresource="status",
        )
    )
    status, out, err = status_command("-o", "json")
    assert (status, err) == (0, "")
    device = json.loads(out)["fabrics"][0]["enclosures"][0]["devices"][0]
    assert device["state"] == state
    assert device["waitsFor"] == forgotten.replace("the fabric manager no", "the fabric manager, which no")
    lines = " ".join(status_command()[1].replace("│", " ").split())
    assert (
        "waits for the fabric manager, which no longer shows this connection: since 2026-01-02T03:04:05Z"
        in lines
    )


def test_forty_columns_hold_every_name(status_command, cluster, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    status, out, _ = status_command()
    assert status == 0
    assert max(map(len, out.splitlines())) <= 40
    for name in ("rack-1", "gpu-1", "default/train", "train-0"):
        assert name in out


def test_a_watch_prints_changes_again(status_command, cluster, monkeypatch):
    from drawbar.driver.cli.verbs import status as command

    pauses = []

    async def pause():
        pauses.append(None)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        if len(pauses) == 2:
            async with open_client() as api:
                await api.delete(kinds.ATTACHMENT, "rack-1.gpu-1")

    def open_client():
        from drawbar.driver.kube import client, config

        return client.connecting(config.from_kubeconfig(cluster.server.kubeconfig))

    monkeypatch.setattr(command, "_pause", pause)
    status, out, _ = status_command("--watch", "-o", "json")
    assert status == 130
    states = [
        json.loads(line)["fabrics"][0]["enclosures"][0]["devices"][0]["state"] for line in out.splitlines()
    ]
    assert states == ["Ready", "Allocated"]


def test_a_pod_shows_the_taints_of_its_device_with_their_values(status_command, cluster):
    async def taint(api):
        listing = await api.list_all(kinds.SLICE, into=dict)
        [entry] = [entry for entry in listing.items if entry["spec"]["pool"]["name"] == "rack-1/enc-1"]
        listed = [{"key": "drawbar.dev/fabric-health", "value": "critical", "effect": "NoSchedule"}]
        entry["spec"]["devices"][0]["taints"] = listed
        await api.replace(kinds.SLICE, entry["metadata"]["name"], entry, into=dict)

    cluster(taint)
    for target in ("pod/train-0", "claim/train", "node/node-1"):
        out = status_command(target)[1]
        assert "! device rack-1/enc-1/gpu-1 has the taint drawbar.dev/fabric-health=critical" in out
        assert re.search("gpu-1  Ready .*drawbar.dev/fabric-health=critical:NoSchedule$", out, re.MULTILINE)
        assert "gpu-2" not in out


def test_a_tainted_device_in_use_counts_as_in_use(status_command, cluster):
    async def taint(api):
        listing = await api.list_all(kinds.SLICE, into=dict)
        [entry] = [entry for entry in listing.items if entry["spec"]["pool"]["name"] == "rack-1/enc-1"]
        entry["spec"]["devices"][0]["taints"] = entry["spec"]["devices"][1]["taints"]
        await api.replace(kinds.SLICE, entry["metadata"]["name"], entry, into=dict)

    cluster(taint)
    assert "Devices 3 devices: 2 in use, 1 tainted\n" in status_command()[1]
