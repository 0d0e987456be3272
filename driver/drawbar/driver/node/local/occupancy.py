"""What the host itself uses a device for: mounts, swap and holders of a disk, addresses of a network interface.

What cannot be seen counts as used: a node daemon that sees only its own pod's processes knows nothing of the host's
mounts, so it offers no disk. Reads files, so call it in a thread.
"""

from collections.abc import Callable, Collection, Iterable

from drawbar.driver.node.classes import users
from drawbar.driver.node.inventory import model
from drawbar.driver.node.release import plan as release_plan

# Of these interfaces those that must not be taken away, with the reason; None: cannot be told. `inventory.netdevs.held`.
Interfaces = Callable[[Collection[str]], dict[str, str] | None]


def is_needed(cards: Iterable[model.Card]) -> bool:
    """Whether there is a disk or a network interface to look at; most nodes offer neither."""
    return any(
        function.net_interfaces or any(node.block for node in function.device_nodes)
        for card in cards
        for function in card.functions
    )


def busy(host: users.Host, cards: Iterable[model.Card], interfaces: Interfaces) -> dict[str, str]:
    """By the address of a card what the host uses it for; a card that it does not use is absent."""
    found: dict[str, str] = {}
    known = tuple(cards)
    names = {name for card in known for function in card.functions for name in function.net_interfaces}
    if names:
        _network(known, interfaces(names), found)
    if any(node.block for card in known for node in card.device_nodes):
        _disks(host, known, found)
    return found


def _network(cards: tuple[model.Card, ...], held: dict[str, str] | None, found: dict[str, str]) -> None:
    for card in cards:
        names = [name for function in card.functions for name in function.net_interfaces]
        if names and held is None:
            found[card.address] = "whether its network interfaces are in use cannot be told"
        for name in names if held is not None else ():
            if held is not None and name in held:
                found[card.address] = f"network interface {name} {held[name]}"


def _disks(host: users.Host, cards: tuple[model.Card, ...], found: dict[str, str]) -> None:
    blind = users.blindness(host.proc)
    for card in cards:
        nodes = [node for node in card.device_nodes if node.block]
        if not nodes:
            continue
        if blind is not None:
            found[card.address] = f"whether the host uses its disk cannot be told: {blind}"
            continue
        in_use = users.find_storage_users(host, nodes)
        if in_use:
            found[card.address] = f"the host uses its disk: {release_plan.message(in_use)}"
