"""What the qemu adapter decides, without a QEMU."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import contract, errors, judgement
from drawbar.fabric.notes import Note
from drawbar.fabric.qemu import hotplug, pool, ports, qmp, sights

NVME = pool.Nvme(id="nvme-1", serial="S1", file="/pool/nvme-1", properties={"mdts": 7})
MEMORY = pool.CxlMemory(id="mem-1", serial=4660, file="/m", labels_file="/l", size_mib=256)
MODELS = [
    NVME,
    MEMORY,
    pool.SharedMemory(id="shm-1", file="/shm"),
    pool.Edu(id="edu-1"),
    pool.E1000e(id="nic-1", mac="52:54:00:12:34:56"),
    pool.Igb(id="nic-2", mac="52:54:00:12:34:57"),
]
EMPTY = sights.Port(id="rp1")
HOST = sights.Host(id="vm1", ports=(EMPTY, sights.Port(id="crp1", cxl=True)))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_the_note_comes_before_the_device_and_the_device_comes_last(model):
    steps = hotplug.attach(model, EMPTY, HOST, Note(request_id="r", mark="m"))
    kinds = [type(step) for step in steps]
    assert kinds[0] is hotplug.AddNote
    assert kinds[-1] is hotplug.AddDevice
    assert Note.from_text(steps[0].text) == Note(request_id="r", mark="m")
    arguments = steps[-1].arguments
    assert (arguments["driver"], arguments["id"], arguments["bus"]) == (
        pool.driver(model),
        f"drawbar.{model.id}",
        "rp1",
    )
    made = {getattr(step, "name", None) or getattr(step, "id", None) for step in steps[1:-1]}
    assert made <= set(arguments.values())


def test_leftovers_of_an_earlier_attach_go_first_and_names_stay_unique():
    left = dataclasses.replace(
        HOST,
        objects=frozenset({"drawbar.mem-1.memory-0", "drawbar.mem-1.note", "drawbar.mem-10.memory-0"}),
    )
    steps = hotplug.attach(MEMORY, EMPTY, left, Note())
    assert steps[:2] == (
        hotplug.RemoveObject(id="drawbar.mem-1.memory-0"),
        hotplug.RemoveObject(id="drawbar.mem-1.note"),
    )
    assert steps[-1].arguments["memdev"] == "drawbar.mem-1.memory-1"
    assert "drawbar.mem-10.memory-0" not in str(steps)


def test_nothing_is_tidied_that_is_attached_or_in_flight():
    left = dataclasses.replace(
        HOST, objects=frozenset({"drawbar.a.note", "drawbar.b.note", "drawbar.c.note"})
    )
    assert hotplug.tidy(["a", "b", "c"], left, {"a"}, {"b"}) == (hotplug.RemoveObject(id="drawbar.c.note"),)


def judge_attach(request, devices, hosts, reserved=frozenset(), *, cxl=frozenset(), busy=frozenset()):
    def choose_port(device, host):
        return ports.choose(host, reserved, cxl=device.id in cxl)

    return judgement.attach(request, devices, hosts, busy=busy, choose_port=choose_port)


@st.composite
def some_ports(draw):
    port_devices = st.sampled_from([None, "nvme-1", "edu-1", "mem-1"])
    return tuple(
        sights.Port(
            id=f"p{number}",
            cxl=draw(st.booleans()),
            port_devices=()
            if draw(st.booleans())
            else (sights.PortDevice(path=f"/x/{number}", device_id=draw(port_devices)),),
        )
        for number in range(draw(st.integers(0, 4)))
    )


@given(
    seen=some_ports(),
    other=some_ports(),
    taken=st.sets(st.sampled_from(["p0", "p1", "p2", "p3"])),
    busy=st.sets(st.sampled_from(["nvme-1", "edu-1", "mem-1"])),
    device_id=st.sampled_from(["nvme-1", "edu-1", "mem-1"]),
)
def test_nothing_begins_on_a_port_in_use_or_for_a_device_that_is_anywhere(
    seen, other, taken, busy, device_id
):
    hosts = {"vm1": sights.Host(id="vm1", ports=seen), "vm2": sights.Host(id="vm2", ports=other)}
    places = sights.find_locations(hosts.values())
    devices = {model.id: pool.device(model) for model in (NVME, MODELS[3], MEMORY)}
    for name, place in places.items():
        connection = contract.Connection(host_id=place.host.id, port_id=place.port.id)
        devices[name] = dataclasses.replace(devices[name], connection=connection)
    request = contract.AttachRequest(request_id="r", device_id=device_id, host_id="vm1", mark="m")
    places_taken = frozenset(("vm1", name) for name in taken)
    try:
        verdict = judge_attach(request, devices, hosts, places_taken, cxl={"mem-1"}, busy=busy)
    except errors.FabricError:
        return
    assert device_id not in busy
    if isinstance(verdict, judgement.Stay):
        assert places[device_id].host.id == "vm1"
        return
    port = hosts["vm1"].port(verdict.port_id)
    assert device_id not in places
    assert not port.port_devices
    assert verdict.port_id not in taken
    assert port.cxl == (device_id == "mem-1")
    model = MEMORY if device_id == "mem-1" else NVME
    assert hotplug.attach(model, port, hosts["vm1"], Note())


def test_a_port_that_an_attach_in_flight_has_is_passed_over():
    host = dataclasses.replace(HOST, ports=(EMPTY, sights.Port(id="rp2")))
    request = contract.AttachRequest(request_id="r", device_id="nvme-1", host_id="vm1")
    verdict = judge_attach(request, {"nvme-1": pool.device(NVME)}, {"vm1": host}, frozenset({("vm1", "rp1")}))
    assert verdict == judgement.Begin(device_id="nvme-1", port_id="rp2")


def test_a_port_that_filled_up_since_the_judgement_gets_nothing():
    used = dataclasses.replace(EMPTY, port_devices=(sights.PortDevice(path="/x"),))
    with pytest.raises(errors.Aborted):
        hotplug.attach(NVME, used, HOST, Note())


@pytest.mark.parametrize(
    ("asked", "refused", "there", "now", "step"),
    [
        (None, False, True, 0, hotplug.Ask),
        (0, False, True, 1, hotplug.Wait),
        (0, False, True, 15, hotplug.Ask),
        (0, False, True, 60, hotplug.GiveUp),
        (0, True, True, 1, hotplug.GiveUp),
        (0, True, False, 99, hotplug.Done),
        (None, False, False, 0, hotplug.Done),
    ],
)
def test_a_detach_asks_waits_asks_again_and_gives_up(asked, refused, there, now, step):
    progress = hotplug.Progress(deadline=60, asked=asked, refused=refused)
    assert isinstance(hotplug.detach("d", progress, now, there=there), step)


@pytest.mark.parametrize(
    ("sentence", "meaning"),
    [
        ("Hot-unplug failed: guest is busy (power indicator blinking)", "busy"),
        ("Hot-plug failed: guest is busy (power indicator blinking)", "busy"),
        ("Device drawbar.x is already in the process of unplug", "pending"),
        ("Duplicate device ID 'drawbar.x'", "duplicate"),
        ("Duplicate nodes with node-name='n'", "duplicate"),
        ("attempt to add duplicate property 'n' to object (type 'container')", "duplicate"),
        ("Bus 'rpX' not found", "no-port"),
        ('Failed to get "write" lock', "locked"),
        ("Property 'edu.foo' not found", "unsupported"),
        ("'igb' is not a valid device model name", "unsupported"),
        ("object 'drawbar.m' is in use, can not be deleted", "held"),
        ("Node drawbar-n is in use", "held"),
        ("object 'drawbar.m' not found", "gone"),
        ("Failed to find node with node-name='n'", "gone"),
        ("Could not open '/nope': No such file or directory", "refused"),
    ],
)
def test_every_sentence_of_qemu_has_a_meaning(sentence, meaning):
    assert qmp.find_meaning(qmp.Rejected("GenericError", sentence)) == meaning


def test_a_device_that_is_not_found_is_gone():
    error = qmp.Rejected("DeviceNotFound", "Device 'x' not found")
    assert qmp.find_meaning(error) is qmp.Meaning.GONE


@pytest.mark.parametrize("text", [None, "", "no JSON", "[]", '{"request": 1, "mark": []}', 7])
def test_a_note_that_nobody_here_wrote_says_nothing(text):
    assert Note.from_text(text) == Note()


@pytest.mark.parametrize(
    ("model", "serial"),
    [(NVME, "S1"), (MEMORY, "0x1234"), (MODELS[4], "52-54-00-ff-ff-12-34-56"), (MODELS[3], None)],
    ids=["nvme", "cxl", "nic", "edu"],
)
def test_the_serial_equals_the_guests_reading(model, serial):
    assert pool.device(model).serial == serial


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (NVME, [("nvme-serial", "s1")]),
        (MEMORY, [("pcie-dsn", "00-00-00-00-00-00-12-34")]),
        (MODELS[4], [("pcie-dsn", "52-54-00-ff-ff-12-34-56")]),
        (
            pool.E1000e(id="n", mac="90:54:00:12:34:56"),
            [("pcie-dsn", "90-54-00-ff-ff-12-34-56"), ("mac", "90:54:00:12:34:56")],
        ),
        (MODELS[3], []),
    ],
    ids=["nvme", "cxl", "nic-of-qemus-prefix", "nic", "edu"],
)
def test_a_device_declares_the_kinds_that_its_guest_can_read(model, expected):
    assert [(each.kind.value, each.value) for each in pool.device(model).identifiers] == expected


def test_a_stopped_host_is_refused_and_a_model_gets_a_free_device():
    devices = {"edu-1": pool.device(MODELS[3]), "edu-2": pool.device(pool.Edu(id="edu-2"))}
    request = contract.AttachRequest(request_id="r", model="qemu-edu", host_id="vm1")

    def on_host(host, busy=frozenset(), wanted=request):
        return judge_attach(wanted, devices, {"vm1": host}, busy=busy)

    assert on_host(HOST, {"edu-1"}).device_id == "edu-2"
    with pytest.raises(errors.ResourceExhausted):
        on_host(HOST, {"edu-1", "edu-2"})
    with pytest.raises(errors.NotFound, match="model"):
        on_host(HOST, wanted=dataclasses.replace(request, model="other"))
    with pytest.raises(errors.Unavailable, match="start it"):
        on_host(dataclasses.replace(HOST, running=False))
