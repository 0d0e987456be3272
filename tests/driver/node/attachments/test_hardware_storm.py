"""A storm of hardware events on a node with many attachments: a change that wakes few of them loses no report.

Two nodes see the same cards come, go and change. One wakes the attachments that `Context.is_affected` names, as the daemon
does. The other wakes all at every event. At the end, every attachment has the same report on both. The observation, the plan,
the executor and the reporter are the daemon's own; the kernel's view is a `Live` that the test changes.
"""

import asyncio
import datetime
import types

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.scenes import attachments as scenes
from tests.scenes import cards

from drawbar.driver.api import attachments
from drawbar.driver.node.attachments import context, executor, reporting
from drawbar.driver.node.discovery import live, reader
from drawbar.driver.node.inventory import model
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

START = datetime.datetime(2026, 1, 2, 3, 0, 0, tzinfo=datetime.UTC)
PATIENCE = datetime.timedelta(seconds=60)
BUSES = range(1, 9)
DEVICES = range(7)
"""The first three are recognised by a UUID, the next two by a MAC address, the sixth by its slot, the last by its arrival."""
UP, SLOW, DOWN = (
    model.Link(speed_gts=32.0, width=16, max_speed_gts=32.0, max_width=16),
    model.Link(speed_gts=2.5, width=16, max_speed_gts=32.0, max_width=16),
    model.Link(max_speed_gts=32.0, max_width=16),
)


def numbers(device):
    """Return the kind and the text of the device's number; an empty text for a device without one."""
    if device in (0, 1, 2):
        return Kind.GPU_UUID, f"GPU-3f1c5ab4-3d3b-4a0e-9d4a-2b7c6d5e4f0{device}"
    return Kind.MAC, f"94:6d:ae:51:c0:2{device}" if device in (3, 4) else ""


def second_number(device):
    """Return a number of the GPU that its card does not show, and that another card may show by a fault."""
    return f"48-b0-2d-01-02-03-04-0{device}"


def is_nic(device):
    return device in (3, 4)


def _model(device):
    """Return the PCI device id: one for NICs, one for GPUs with a UUID, and one for each other GPU."""
    return 0x1021 if is_nic(device) else 0x2330 + (device if device > 4 else 0)


def make_attachment(device):
    """Return the attachment of a device that its fabric has attached."""
    kind, text = numbers(device)
    identity = attachments.Identity(
        device_class="nic" if is_nic(device) else "gpu",
        identifiers=tuple(
            attachments.DeviceIdentifier(kind=each.value, value=number)
            for each, number in ((kind, text), (Kind.PCIE_DSN, second_number(device) if device < 3 else ""))
            if number
        ),
        pci_id="15b3:1021" if is_nic(device) else f"10de:{_model(device):04x}",
        slot="6" if device == 5 else "",
        sole_arrival=device == 6,
    )
    return scenes.attachment(
        attachments.ATTACHED,
        name=f"fab.d{device}",
        uid=f"u{device}",
        device=f"d{device}",
        identity=identity,
        claim=attachments.ClaimReference(namespace="ns", name=f"c{device}", uid=f"claim-{device}"),
        allocation_timestamp="2026-01-02T03:00:00Z",
    )


def make_card(bus, device, **changes):
    """Return the function of the device at this bus."""
    kind, text = numbers(device)
    fields = {
        "vendor": 0x15B3 if is_nic(device) else 0x10DE,
        "device": _model(device),
        "driver": "mlx5_core" if is_nic(device) else "vfio-pci",
        "slot": str(bus),
        "link": UP,
        "identifiers": cards.identifiers(kind, text),
        "sriov": model.Sriov(total_vfs=2, num_vfs=0),
    }
    kind_of_card = DeviceClass.NIC if is_nic(device) else DeviceClass.GPU
    return cards.function(f"0000:{bus:02x}:00.0", kind_of_card, **fields | changes)


class Arrivals:
    """The node's devices in the kernel's view, as `devices.Devices` shows them."""

    losses = 0
    hanging = ()

    def __init__(self):
        self.live = live.Live()
        self.live.take(reader.Observation(slots={str(bus): cards.slot(str(bus)) for bus in BUSES}))
        self.subscribers = []

    @property
    def inventory(self):
        return self.live.snapshot()

    @property
    def cards(self):
        return self.inventory.cards

    @property
    def is_lagging(self):
        return bool(self.live.lagging)

    def subscribe(self, changed):
        self.subscribers.append(changed)

    def take(self, functions):
        changes, _ = self.live.take(reader.Observation(functions=functions))
        if changes:
            for changed in tuple(self.subscribers):
                changed(changes)

    async def refresh(self, address):
        return self.live.card_of(address)

    async def refresh_slot(self, name):
        return None

    async def refresh_lagging(self):
        return None


class Api:
    """The attachments at the API server, with the merge of the node's fields in their status."""

    def __init__(self, stored):
        self.stored = stored

    async def patch(self, _kind, name, body, *, into, **_):
        before = msgspec.to_builtins(self.stored[name])
        reported = body["status"]
        own = {each["type"] for each in reported["conditions"]}
        rest = [each for each in before["status"].get("conditions", ()) if each["type"] not in own]
        before["status"] |= {**reported, "conditions": [*rest, *reported["conditions"]]}
        return msgspec.convert(before, into)


class Node:
    """A node daemon's work on attachments, in virtual time."""

    def __init__(self, *, wakes_all):
        self.now, self.wakes_all = START, wakes_all
        self.arrivals = Arrivals()
        self.stored = {each.metadata.name: each for each in map(make_attachment, DEVICES)}
        self.woken, self.due = set(self.stored), {}
        self.rounds = 0
        silent = types.SimpleNamespace(
            record_normal=_do_nothing,
            record_warning=_do_nothing,
            attachment_normal=_do_nothing,
            attachment_warning=_do_nothing,
        )
        reporter = reporting.Reporter(
            api=Api(self.stored),
            recorder=silent,
            boot_id="b",
            learn=self.learn,
            tells_claims=lambda: False,
        )
        self.context = context.Context(
            reporter=reporter,
            arrivals=self.arrivals,
            kernel=types.SimpleNamespace(sysfs=reader.Path("/nonexistent/sys"), probe=_probe, run=_run),
            treatment=None,
            boot_id="b",
            since=START,
            patience=PATIENCE,
            clock=lambda: self.now,
            time_of_day=lambda: self.now,
            holder=lambda _pool, _device: None,
            hooks=None,
            companion=self.stored.get,
            attached=lambda: tuple(self.stored.values()),
        )
        self.arrivals.subscribe(self.hardware_changed)

    def hardware_changed(self, changes):
        self.woken.update(
            name
            for name, each in self.stored.items()
            if self.wakes_all or self.context.is_affected(each, changes)
        )

    def learn(self, stored):
        self.stored[stored.metadata.name] = stored
        self.woken.add(stored.metadata.name)

    async def settle(self):
        """Work until nobody is woken."""
        for _ in range(200):
            if not self.woken:
                return
            name = min(self.woken)
            self.woken.discard(name)
            self.rounds += 1
            seconds = await executor.reconcile(self.context, self.stored[name])
            self.due.pop(name, None)
            if seconds is not None:
                self.due[name] = self.now + datetime.timedelta(seconds=seconds)
        raise AssertionError(f"the work on {sorted(self.woken)} does not end")

    async def wait(self, seconds):
        """Let the time pass, with all looks that fall due."""
        end = self.now + datetime.timedelta(seconds=seconds)
        while self.due and min(self.due.values()) <= end:
            self.now = max(self.now, min(self.due.values()))
            self.woken.update(name for name, moment in self.due.items() if moment <= self.now)
            await self.settle()
        self.now = end

    def reports(self):
        """Return the node's part of each attachment."""
        return {
            name: (
                each.status.phase,
                {one.type: (one.status, one.reason, one.message) for one in each.status.conditions},
                each.status.node,
            )
            for name, each in self.stored.items()
        }


def _do_nothing(*_, **__):
    return None


async def _probe(_address):
    return None


async def _run(_target, _what, function):
    return function()


STATES = {
    "driver": (None, "vfio-pci", "mlx5_core"),
    "link": (UP, SLOW, DOWN),
    "sriov": tuple(model.Sriov(total_vfs=2, num_vfs=amount) for amount in range(3)),
}


class Cards:
    """The cards of a host, by bus, and their virtual functions."""

    def __init__(self):
        self.placed, self.arrived = {}, 0

    def _arrive(self, card):
        self.arrived += 1
        return msgspec.structs.replace(card, arrival=self.arrived)

    def do(self, step):
        """Take one step; return the functions that it changes, by address, as the kernel shows them then."""
        what, bus, device = step
        before = {bus: self._functions(bus)}
        match what:
            case "plug":
                self.placed[bus] = self._arrive(make_card(bus, device))
            case "replug" if bus in self.placed:
                self.placed[bus] = self._arrive(self.placed[bus])
            case "unplug":
                self.placed.pop(bus, None)
            case "move" if bus in self.placed:
                to = 1 + device
                before.setdefault(to, self._functions(to))
                card = self.placed.pop(bus)
                address = f"0000:{to:02x}:00.0"
                path = f"devices/pci0000:00/{address}"
                card = msgspec.structs.replace(card, address=address, path=path, slot=str(to))
                self.placed[to] = self._arrive(card)
            case "clone" if bus in self.placed:
                kind, text = numbers(device)
                self._change(bus, identifiers=cards.identifiers(kind, text))
            case "second":
                self._change(bus, identifiers=cards.identifiers(Kind.PCIE_DSN, second_number(device)))
            case "hide":
                self._change(bus, identifiers=())
            case "driver" | "link" | "sriov":
                self._change(bus, **{what: STATES[what][device % 3]})
            case "attribute":
                self._change(bus, numa_node=device, net_interfaces=(f"eth{device}",) if device else ())
        after = {each: self._functions(each) for each in before}
        changed = {}
        for each, functions in before.items():
            changed |= dict.fromkeys(functions) | after[each]
        return changed

    def _change(self, bus, **changes):
        if bus in self.placed:
            self.placed[bus] = msgspec.structs.replace(self.placed[bus], **changes)

    def _functions(self, bus):
        card = self.placed.get(bus)
        if card is None:
            return {}
        functions = {card.address: card}
        for number in range(1, card.sriov.num_vfs + 1):
            address = f"{card.address[:-1]}{number}"
            functions[address] = msgspec.structs.replace(
                card,
                address=address,
                path=f"devices/pci0000:00/{address}",
                sriov=None,
                identifiers=(),
                physical_function=card.address,
            )
        return functions


CHANGE = st.tuples(
    st.sampled_from(
        [
            "plug",
            "plug",
            "unplug",
            "move",
            "replug",
            "clone",
            "second",
            "hide",
            "driver",
            "link",
            "sriov",
            "attribute",
        ]
    ),
    st.sampled_from(BUSES),
    st.sampled_from(DEVICES),
)
STEPS = st.lists(
    st.one_of(
        st.lists(CHANGE, min_size=1, max_size=3),
        st.sampled_from([1.0, 12.0, 70.0]),
    ),
    max_size=16,
)
ALL_PLUGGED = [[("plug", 1 + device, device)] for device in DEVICES]


async def play(steps, *, wakes_all):
    """Play the steps; return the node when all is quiet. Each step is a time to wait, or changes that arrive together."""
    node, host = Node(wakes_all=wakes_all), Cards()
    await node.settle()
    for step in steps:
        if isinstance(step, float):
            await node.wait(step)
            continue
        changed = {}
        for change in step:
            changed |= host.do(change)
        node.arrivals.take(changed)
        await node.settle()
    await node.wait(3 * PATIENCE.total_seconds())
    return node


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(begins_full=st.booleans(), steps=STEPS)
@example(begins_full=True, steps=[[("unplug", 1, 0)]])
@example(begins_full=True, steps=[[("clone", 2, 0)]])
@example(begins_full=True, steps=[[("second", 2, 0)]])
@example(begins_full=True, steps=[[("plug", 8, 0)], 1.0, [("unplug", 1, 0)]])
@example(begins_full=True, steps=[[("move", 1, 7 - 1), ("plug", 2, 0)]])
def test_a_storm_of_hardware_events_leaves_every_report_as_if_all_were_woken_at_each(begins_full, steps):
    played = [*ALL_PLUGGED, 12.0, *steps] if begins_full else steps
    few = asyncio.run(play(played, wakes_all=False))
    all_of_them = asyncio.run(play(played, wakes_all=True))
    assert few.reports() == all_of_them.reports()


async def test_the_storm_has_ready_devices_that_sleep_through_the_events_of_others():
    quiet = [*ALL_PLUGGED, 12.0, *([[("attribute", 7, number)] for number in range(5)])]
    few, all_of_them = await play(quiet, wakes_all=False), await play(quiet, wakes_all=True)
    ready = [each for each in few.stored.values() if each.holds(attachments.VISIBLE)]
    assert len(ready) >= 5
    assert few.rounds < all_of_them.rounds
