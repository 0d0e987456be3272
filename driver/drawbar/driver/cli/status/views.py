"""The tree for people; pure. A line for each device, unless it is free and nothing is to be said of it."""

import datetime
from collections import Counter
from collections.abc import Iterable, Set

from rich import console, text
from rich import tree as rich_tree

from drawbar.driver.api import meta
from drawbar.driver.cli import tables
from drawbar.driver.cli.status import tree

# Printed one by one, those that wait first; the rest are counted.
DEVICES = 100
# Likewise, of reachability groups and of refused pairs.
GROUPS = 10
LEFT_OUT = 8
"""Of the devices that a node leaves to others, as many are printed."""
_COLOURS = {
    "Ready": "green",
    "Connected": "green",
    "InUse": "green",
    "Reserved": "green",
    "Held": "cyan",
    "Idle": "cyan",
    "Free": "dim",
    "Failed": "bold red",
    "Missing": "bold red",
}


def show(out: console.Console, shown: tree.Tree, *, now: datetime.datetime, every: bool = False) -> None:
    """Print the tree.

    Args:
        out: where to.
        shown: what was read.
        now: from which ages are counted.
        every: print also the free devices one by one, and as many as there are.
    """
    worth = sorted(
        (device for device in shown.devices if every or device.state != tree.FREE or device.taints),
        key=lambda device: device.state in tree.SETTLED,
    )
    single = frozenset(map(_key, worth if every else worth[:DEVICES]))
    for claim in shown.claims:
        out.print(_claim(claim, now))
        if claim.waits_for:
            tables.sentence(out, f"  waits for {claim.waits_for}")
    for fabric in shown.fabrics:
        devices = [device for enclosure in fabric.enclosures for device in enclosure.devices]
        beyond = f"; {fabric.not_offered} not offered (spec.offer)" if fabric.not_offered else ""
        top = rich_tree.Tree(
            _line(f"fabric {fabric.name}", fabric.state, fabric.since, now, f"{_counts(devices)}{beyond}")
        )
        if fabric.message:
            top.add(_words("waits for ", fabric.message, style="yellow"))
        _reach(top, fabric, every=every)
        for enclosure in fabric.enclosures:
            branch = top
            if enclosure.name:
                branch = top.add(_words("enclosure ", enclosure.name, f"  {_counts(enclosure.devices)}"))
            _devices(branch, enclosure.devices, now, single)
        out.print(top)
    counted: list[tree.Device] = []
    for local in shown.local:
        if single.isdisjoint(map(_key, local.devices)) and not local.left_out:
            counted += local.devices
            continue
        top = rich_tree.Tree(_words("own devices of node ", local.node or "?", f"  {_counts(local.devices)}"))
        _devices(top, local.devices, now, single)
        _left_out(top, local.left_out, every=every)
        out.print(top)
    if counted:
        nodes = len({device.node for device in counted})
        tables.sentence(out, f"own devices of {nodes} more nodes  {_counts(counted)}; --all shows them")
    if not (shown.fabrics or shown.local or shown.claims):
        tables.sentence(out, "There are no fabrics and no devices.")


def _reach(branch: rich_tree.Tree, fabric: tree.Fabric, *, every: bool) -> None:
    """Add the reachability groups, and the pairs that the manager refused."""
    if fabric.reach_groups:
        below = branch.add(text.Text("reachability groups"))
        for group in fabric.reach_groups if every else fabric.reach_groups[:GROUPS]:
            counts = f"  {group.devices} devices, {group.hosts} hosts, {group.nodes} of them nodes"
            below.add(_words(group.id, counts, style="" if group.hosts else "yellow"))
        if not every and (more := len(fabric.reach_groups) - GROUPS) > 0:
            below.add(text.Text(f"and {more} more; --all shows them", style="dim"))
    if fabric.incompatible:
        below = branch.add(text.Text("refused by the fabric manager", style="yellow"))
        for pair in fabric.incompatible if every else fabric.incompatible[:GROUPS]:
            below.add(_words(pair.device, " at host ", pair.host, ": ", pair.message))
        if not every and (more := len(fabric.incompatible) - GROUPS) > 0:
            below.add(text.Text(f"and {more} more; --all shows them", style="dim"))


def _devices(
    branch: rich_tree.Tree,
    devices: Iterable[tree.Device],
    now: datetime.datetime,
    single: Set[tuple[str, str]],
) -> None:
    listed = sorted(devices, key=lambda device: device.state in tree.SETTLED)
    for device in listed:
        if _key(device) in single:
            _device(branch, device, now)
    rest = [device for device in listed if _key(device) not in single]
    if more := sum(device.state != tree.FREE or bool(device.taints) for device in rest):
        branch.add(text.Text(f"and {more} more; --all shows them", style="dim"))
    free = Counter(
        device.model or device.device_class
        for device in rest
        if device.state == tree.FREE and not device.taints
    )
    if free:
        names = ", ".join(f"{tables.clean(name) or '?'} x {count}" for name, count in sorted(free.items()))
        branch.add(text.Text(f"free: {names}", style="dim"))


def _left_out(branch: rich_tree.Tree, listed: tuple[tree.LeftOut, ...], *, every: bool) -> None:
    """Add the devices that a node leaves to others, and how many more there are."""
    shown = listed if every else listed[:LEFT_OUT]
    for left in shown:
        branch.add(_words("left out: ", left.name, ": ", left.reason))
    if more := len(listed) - len(shown):
        branch.add(text.Text(f"and {more} more are left out; --all shows them", style="dim"))


def _key(device: tree.Device) -> tuple[str, str]:
    return device.pool, device.name


def _device(branch: rich_tree.Tree, device: tree.Device, now: datetime.datetime) -> None:
    about = " ".join(part for part in (device.device_class, device.model, device.serial) if part)
    line = _line(device.name, device.state, device.since, now, about)
    for taint in device.taints:
        line.append(f"  {tables.clean(taint.key)}:{tables.clean(taint.effect)}", style="yellow")
    node = branch.add(line)
    if device.waits_for:
        node.add(_words("waits for ", device.waits_for, style="yellow"))
    below = node.add(_words("node ", device.node)) if device.node else node
    for claim in device.claims:
        leaf = below.add(_claim(claim, now))
        for pod in claim.pods:
            leaf.add(_words("pod ", pod))


def _claim(claim: tree.Claim, now: datetime.datetime) -> text.Text:
    return _line(f"claim {claim.namespace}/{claim.name}", claim.state, claim.since, now, "")


def colour(state: str) -> str:
    """Return the style of a state; yellow for what is waited for."""
    return _COLOURS.get(state, "yellow")


def _line(name: str, state: str, since: str, now: datetime.datetime, about: str) -> text.Text:
    line = text.Text(tables.clean(name), style="bold")
    line.append(f"  {tables.clean(state)}", style=colour(state))
    if since:
        line.append(f" {age(since, now)}", style="not bold dim")
    if about:
        line.append(f"  {tables.clean(about)}", style="not bold")
    return line


def _words(*parts: str, style: str = "") -> text.Text:
    return text.Text("".join(tables.clean(part) for part in parts), style=style)


def _counts(devices: Iterable[tree.Device]) -> str:
    counted = Counter(device.state for device in devices)
    total = sum(counted.values())
    listed = ", ".join(f"{count} {state}" for state, count in sorted(counted.items()))
    return f"{total} device{'s' * (total != 1)}{': ' * bool(listed)}{listed}"


def age(since: str, now: datetime.datetime) -> str:
    """Return how long ago that was, in its largest unit; a question mark for what is no time."""
    moment = meta.moment(since)
    if moment is None:
        return "?"
    seconds = max(0, int((now - moment).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
