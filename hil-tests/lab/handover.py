"""One device from its claim to its return, as scheduler, controller and electrician play it together.

    lent = await handover.attach_device(node, await node.chassis.disk("disk-a"), "port-1")
    await handover.ask_back(node, lent)
    await handover.take_back(node, lent)

The claim has the device's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab import chassis, cluster, waiting, worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """A device for a claim on a node.

    Attributes:
        card: what is plugged in.
        device: the same as its fabric describes it.
        port: where it is, or is to be.
    """

    card: chassis.Card
    device: cluster.Device
    port: str

    @property
    def name(self) -> str:
        """Return the name of the device and of its claim."""
        return self.card.name


async def intend_attachment(
    node: worker.Worker,
    card: chassis.Card,
    port: str,
    *,
    memory_mode: str = "",
    erase: bool = False,
    set_up: Mapping[str, object] | None = None,
) -> Lent:
    """Allocate the device to a claim and create its attachment, but plug nothing in."""
    lent = Lent(card=card, device=_make_device(card, port), port=port)
    claim = await node.cluster.claim(lent.name, lent.device, node=node.name)
    await node.cluster.intend(
        claim, lent.device, node=node.name, memory_mode=memory_mode, erase=erase, set_up=set_up
    )
    return lent


async def connect(node: worker.Worker, lent: Lent) -> None:
    """Plug the device in, and report that the fabric has attached it."""
    await node.chassis.plug(lent.card, lent.port)
    await node.cluster.say_attached(lent.device, port=lent.port)


async def attach_device(
    node: worker.Worker,
    card: chassis.Card,
    port: str,
    *,
    memory_mode: str = "",
    erase: bool = False,
    set_up: Mapping[str, object] | None = None,
) -> Lent:
    """Attach a device, and return it once its node shows it."""
    lent = await intend_attachment(node, card, port, memory_mode=memory_mode, erase=erase, set_up=set_up)
    await connect(node, lent)
    await node.cluster.visible(lent.device)
    return lent


async def attached_together(
    node: worker.Worker,
    name: str,
    cards: Mapping[str, chassis.Card],
    *,
    memory_mode: str = "",
    **memory: object,
) -> tuple[Lent, ...]:
    """Attach memory devices, by their ports, as a composite; return its members once all are visible.

    They are one region. The composite and its claim have the same name. `memory` is more of what the claim
    says of their memory, such as `memoryGranularity`.
    """
    members = tuple(
        Lent(card=card, device=_make_device(card, port), port=port) for port, card in cards.items()
    )
    claim = await node.cluster.claim(name, cluster.Device(device=name), node=node.name)
    for lent in members:
        await node.cluster.intend(
            claim,
            lent.device,
            node=node.name,
            memory_mode=memory_mode,
            set_up={"memoryInterleave": True, **memory},
            composite={"name": name, "devices": [member.name for member in members]},
        )
    for lent in members:
        await connect(node, lent)
    for lent in members:
        await node.cluster.visible(lent.device)
    return members


async def give_back_together(node: worker.Worker, name: str, members: Sequence[Lent]) -> None:
    """Delete the claim of a composite, and take all its members back."""
    await node.cluster.deallocate(name)
    for lent in members:
        await node.cluster.begin_release(lent.device)
    for lent in members:
        await take_back(node, lent)


async def ask_back(node: worker.Worker, lent: Lent) -> None:
    """Delete the claim, and ask for the detach, as the controller does."""
    await node.cluster.deallocate(lent.name)
    await node.cluster.begin_release(lent.device)


async def take_back(node: worker.Worker, lent: Lent) -> None:
    """Wait until the node has let go of the device and it is out, and delete its attachment."""
    await node.cluster.wait_until_released(lent.device)
    await node.chassis.out(lent.card)
    await node.cluster.end_release(lent.device)


async def give_back(node: worker.Worker, lent: Lent) -> None:
    """Delete the claim of a device, and take the device back."""
    await ask_back(node, lent)
    await take_back(node, lent)


async def wait_for_refusal(node: worker.Worker, lent: Lent, *, saying: str = "") -> dict[str, Any]:
    """Wait for the node's word that it does not let go, and why; it may say something else first."""
    return await waiting.until(
        lambda: node.cluster.condition(lent.device, "Released"),
        lambda condition: condition.get("status") == "False" and saying in condition["message"],
    )


def _make_device(card: chassis.Card, port: str) -> cluster.Device:
    match card:
        case chassis.Memory():
            # Without power the kernel shows no serial number, so the fabric names the slot.
            slot = str(100 + int(port.rpartition("-")[2]))
            return cluster.Device(
                device=card.name, device_class="cxl-memory", serial=f"{card.serial:#x}", slot=slot
            )
        case chassis.Network():
            # It has no serial number.
            slot = port.rpartition("-")[2]
            return cluster.Device(device=card.name, device_class="nic", pci_id="8086:10c9", slot=slot)
        case chassis.Accelerator():
            return cluster.Device(
                device=card.name, device_class="accelerator", pci_id="1af4:1110", sole_arrival=True
            )
        case chassis.Disk() | chassis.Controller():
            return cluster.Device(device=card.name, serial=card.serial)
