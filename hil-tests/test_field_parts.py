"""Runs on real hardware: the file, the choice of tests, the warnings before anything is touched. Without hardware."""

import dataclasses
import json

import pytest
from field import choice, configuration, fabric_devices, node, preflight, session
from lab import errors

from drawbar.fabric import contract

pytestmark = pytest.mark.short

GOOD = {
    "fabric": {"adapter": "grpc", "endpoint": "unix:/run/fabric.sock"},
    "node": {"name": "w7", "host": "H7", "command": ["ssh", "root@w7"], "checkout": "/opt/drawbar/"},
    "devices": [
        {"id": "disk-1", "class": "nvme"},
        {"id": "disk-2", "class": "nvme", "contents": "lose"},
        {"id": "gpu-1", "class": "gpu"},
    ],
}
SITE = configuration.parse(json.dumps(GOOD))
DISK, EXPENDABLE, GPU = SITE.devices


def encode_changed_site(path, value):
    """Return GOOD as JSON with another value at a path such as node.host; None takes the key away."""
    content = json.loads(json.dumps(GOOD))
    *above, key = path.split(".")
    parent = content
    for name in above:
        parent = parent[int(name)] if isinstance(parent, list) else parent[name]
    if value is None:
        del parent[key]
    else:
        parent[key] = value
    return json.dumps(content)


def test_the_file_becomes_values():
    assert SITE.node == configuration.Node(
        name="w7", host="H7", command=("ssh", "root@w7"), checkout="/opt/drawbar"
    )
    assert (DISK.expendable, EXPENDABLE.expendable, GPU.device_class) == (False, True, "gpu")
    assert SITE.attach_seconds == configuration.WAIT_SECONDS


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("fabric", None, "fabric is missing"),
        ("fabric.adapter", None, "fabric.adapter is missing"),
        ("fabric.endpoint", "", "fabric.endpoint must be a text that is not empty"),
        ("fabric.parameters", {"a": 1}, "fabric.parameters must be a table of texts"),
        ("fabric.verify", "no", "fabric.verify must be true or false"),
        (
            "fabric.token",
            "x",
            "fabric.token is not a known key; known are adapter, credentialsFile, endpoint",
        ),
        ("node", "w7", "node must be a table of keys and values"),
        ("node.command", "ssh root@w7", "node.command must be a list of texts, such as [ssh, root@worker-7]"),
        ("node.command", [], "node.command must be a list of texts"),
        ("node.checkout", "drawbar", "node.checkout must be an absolute path"),
        ("devices", [], "devices must be a list with at least one entry"),
        ("devices.0.id", None, "devices[0].id is missing"),
        ("devices.0.class", "disk", "devices[0].class must be one of gpu, accelerator"),
        ("devices.1.contents", "maybe", "devices[1].contents must be one of keep, lose"),
        ("devices.1.id", "disk-1", 'the device "disk-1" is listed twice'),
        ("attachSeconds", 0, "attachSeconds must be a number of seconds above 0"),
        ("detachSeconds", True, "detachSeconds must be a number of seconds above 0"),
    ],
)
def test_a_fault_of_the_file_is_one_sentence(path, value, sentence):
    with pytest.raises(configuration.InvalidConfiguration) as caught:
        configuration.parse(encode_changed_site(path, value))
    (reported,) = caught.value.problems
    assert reported.startswith(sentence)


def test_all_faults_are_reported_at_once():
    with pytest.raises(configuration.InvalidConfiguration) as caught:
        configuration.parse("fabric: {}\nnode: {name: a}\n")
    assert len(caught.value.problems) == 6


@pytest.mark.parametrize("text", ["", "- a\n", "7"])
def test_a_file_without_a_table_is_refused(text):
    with pytest.raises(configuration.InvalidConfiguration, match="the file must be a table"):
        configuration.parse(text)


def test_a_line_that_is_not_yaml_is_named():
    with pytest.raises(configuration.InvalidConfiguration, match="line 2 is not YAML"):
        configuration.parse("fabric: {}\nnode: ]\n")


@pytest.mark.parametrize("text", ["token: [s3cret]\n", "password: 's3cret", "user: s3cret\n", "s3cret"])
def test_a_secret_is_in_no_message(text):
    with pytest.raises(configuration.InvalidConfiguration) as caught:
        configuration.credentials(text)
    assert "s3cret" not in str(caught.value)


def test_credentials_are_texts_by_name():
    assert configuration.credentials("username: u\ntoken: s3cret\n").token == "s3cret"


def hardware_test(name="t", **more):
    return choice.Test(name=name, hardware=True, **more)


@pytest.mark.parametrize(
    ("test", "devices", "reason"),
    [
        (choice.Test(name="t"), (), "the lab's electrician"),
        (hardware_test(needs={"nvme": 1}), (DISK,), ""),
        (hardware_test(needs={"nvme": 2}), (DISK, EXPENDABLE), ""),
        (hardware_test(needs={"nvme": 3}), (), "wants 3 of class nvme, and 2 are listed"),
        (hardware_test(needs={"nvme": 1}, writes=True), (EXPENDABLE,), ""),
        (
            hardware_test(needs={"nvme": 2}, writes=True),
            (),
            "writes to 2 of class nvme, and 1 listed say `contents: lose`",
        ),
        (hardware_test(needs={"gpu": 1, "nvme": 1}), (GPU, DISK), ""),
        (hardware_test(device="gpu-1"), (GPU,), ""),
    ],
    ids=["lab", "one", "two", "too-few", "writes", "writes-too-few", "mixed", "each"],
)
def test_a_test_gets_listed_devices_or_is_left_out_with_a_reason(test, devices, reason):
    (chosen,) = choice.choose([test], SITE)
    assert chosen.devices == devices
    assert chosen.reason.startswith(reason) if reason else chosen.reason == ""


def host(state=contract.PortState.FREE):
    return contract.Host(id="H7", name="w7", ports=(contract.Port(id="p1", state=state, slot_hint="12"),))


def make_inventory(**changes):
    """Return what the fabric says of the three listed devices, and of one that is not listed."""
    classes = {"disk-1": "nvme", "disk-2": "nvme", "gpu-1": "gpu", "foreign": "nvme"}
    devices = {
        name: contract.Device(
            id=name, device_class=contract.DeviceClass(device_class), model="M", serial=f"S-{name}"
        )
        for name, device_class in classes.items()
    }
    for name, change in changes.items():
        key = name.replace("_", "-")
        devices[key] = dataclasses.replace(devices[key], **change)
    return contract.Inventory(version="1", devices=tuple(devices.values()))


def make_inventory_without(device_id):
    inventory = make_inventory()
    kept = tuple(device for device in inventory.devices if device.id != device_id)
    return dataclasses.replace(inventory, devices=kept)


def judge_site(inventory=None, hosts=None, **capabilities):
    hosts = (host(),) if hosts is None else hosts
    return preflight.judge(SITE, contract.Capabilities(**capabilities), hosts, inventory or make_inventory())


def test_nothing_speaks_against_free_devices_and_a_free_port():
    assert judge_site() == ()


@pytest.mark.parametrize(
    ("problems", "sentence"),
    [
        (lambda: judge_site(hosts=()), 'the fabric has no host "H7": set node.host to one of none'),
        (lambda: judge_site(hosts=(host(contract.PortState.USED),)), "the host H7 has no free port"),
        (lambda: judge_site(make_inventory_without("gpu-1")), 'the fabric has no device "gpu-1"'),
        (
            lambda: judge_site(make_inventory(disk_1={"connection": contract.Connection(host_id="H9")})),
            "disk-1 is attached to H9",
        ),
        (
            lambda: judge_site(make_inventory(gpu_1={"device_class": contract.DeviceClass.NIC})),
            "gpu-1 is listed as gpu",
        ),
        (lambda: judge_site(make_inventory(disk_2={"serial": None})), "disk-2 has no serial number"),
        (lambda: judge_site(exact_device=False), "the adapter grpc cannot attach a named device"),
    ],
    ids=["no-host", "no-port", "no-device", "attached", "class", "serial", "by-model"],
)
def test_an_objection_of_the_fabric_is_one_sentence(problems, sentence):
    (reported,) = problems()
    assert reported.startswith(sentence)


def test_the_preflight_lists_touched_devices_losses_and_skipped_tests():
    tests = [
        hardware_test("t.py::reads", needs={"nvme": 1}),
        hardware_test("t.py::mounts", needs={"nvme": 1}, writes=True),
        choice.Test(name="t.py::pulls"),
    ]
    text = preflight.describe(SITE, choice.choose(tests, SITE), (host(),), make_inventory(), "Linux 6.1")
    lines = [line.strip() for line in text.splitlines()]
    assert "host     H7; free ports, any of which may be used: p1 (slot 12)" in lines
    assert (
        "device   disk-1 (nvme, M, serial S-disk-1): attached and detached by 1 tests, read and not written"
        in lines
    )
    assert (
        "device   disk-2 (nvme, M, serial S-disk-2): attached and detached by 1 tests, ITS CONTENTS ARE LOST in 1"
        in lines
    )
    assert "device   gpu-1 (gpu, M, serial S-gpu-1): not used by any test" in lines
    assert lines[-3:] == ["1 are left out:", f"{choice.LAB_ALONE}:", "t.py::pulls"]
    assert "foreign" not in text


def test_a_test_takes_only_its_assigned_devices():
    assigned = fabric_devices.Assigned()
    assigned.fill([GPU, DISK])
    assert assigned.take("nvme") == DISK
    assert assigned.take("") == GPU
    with pytest.raises(errors.LabError, match="no further device of class nvme"):
        assigned.take("nvme")


def test_the_command_of_the_file_gets_one_argument_more_a_line_for_the_shell_over_there():
    about = dataclasses.replace(SITE.node, checkout="/opt/my checkout")
    *program, line = node.command(about)
    assert tuple(program) == about.command
    assert line.endswith("exec '/opt/my checkout/.venv/bin/python' -m lab.agent --stdio")


async def run(tmp_path, text):
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return await session.run(path, yes=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("fabric.adapter", "none"), 'unknown fabric adapter "none"; installed adapters:'),
        (("fabric.endpoint", "tcp"), "fabric: "),
        (("fabric.endpoint", "unix:/nowhere/fabric.sock"), "the fabric manager at unix:/nowhere/fabric.sock"),
        (
            ("fabric.credentialsFile", "/nowhere/secret"),
            "the credentials file /nowhere/secret cannot be read",
        ),
        (("node.host", None), "node.host is missing"),
    ],
    ids=["adapter", "endpoint", "silent", "credentials", "file"],
)
async def test_a_run_that_cannot_begin_says_why_and_ends_with_2(tmp_path, capsys, change, sentence):
    path, value = change
    assert await run(tmp_path, encode_changed_site(path, value)) == session.NOT_RUN
    reported = capsys.readouterr().err
    assert reported.startswith("error: ") and sentence in reported  # noqa: PT018  (both of one text)
    assert "Traceback" not in reported


async def test_a_missing_file_is_reported(tmp_path, capsys):
    assert await session.run(tmp_path / "none.yaml", yes=True) == session.NOT_RUN
    assert "none.yaml cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("/nowhere/ssh",), "/nowhere/ssh cannot be started: No such file or directory"),
        (
            ("sh", "-c", "echo Permission denied, please >&2; exit 255; :"),
            "ended with 255: Permission denied, please",
        ),
    ],
)
async def test_an_unreachable_node_is_reported_with_the_output_of_the_command(tmp_path, command, sentence):
    about = dataclasses.replace(SITE.node, command=command)
    with pytest.raises(errors.Unavailable) as caught:
        async with node.connecting(about, tmp_path / "agent.log"):
            pass
    assert sentence in str(caught.value)
