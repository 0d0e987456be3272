"""What a run on real hardware would touch, and what speaks against it. Pure: of the file and of what the fabric says."""

from collections.abc import Sequence

from drawbar.fabric import contract
from field import choice, configuration


def judge(
    site: configuration.Site,
    capabilities: contract.Capabilities,
    hosts: Sequence[contract.Host],
    inventory: contract.Inventory,
) -> tuple[str, ...]:
    """Return one sentence for each reason why the tests cannot run here."""
    problems = []
    if not capabilities.exact_device:
        problems.append(
            f"the adapter {site.fabric.adapter} cannot attach a named device, so it cannot be determined which devices it touches"
        )
    host = next((candidate for candidate in hosts if candidate.id == site.node.host), None)
    if host is None:
        host_ids = ", ".join(sorted(candidate.id for candidate in hosts)) or "none"
        problems.append(f'the fabric has no host "{site.node.host}": set node.host to one of {host_ids}')
    elif not free_ports(host):
        problems.append(
            f"the host {host.id} has no free port: detach something from it, or name another host"
        )
    for device in site.devices:
        problems += _judge_device(device, inventory.device(device.id))
    return tuple(problems)


def free_ports(host: contract.Host) -> tuple[contract.Port, ...]:
    """Return the host's free ports, to which something could be attached."""
    return tuple(port for port in host.ports if port.state is contract.PortState.FREE)


def _judge_device(listed: configuration.Device, seen: contract.Device | None) -> list[str]:
    if seen is None:
        return [f'the fabric has no device "{listed.id}": take it off the list']
    if seen.connection is not None:
        return [
            f"{listed.id} is attached to {seen.connection.host_id}: detach it there, or take it off the list"
        ]
    if seen.device_class != listed.device_class:
        return [
            f"{listed.id} is listed as {listed.device_class}, and the fabric says {seen.device_class}: correct the list"
        ]
    if not seen.serial:
        return [
            f"{listed.id} has no serial number in the fabric, so the node could not distinguish it from another"
        ]
    return []


def describe(
    site: configuration.Site,
    choices: Sequence[choice.Choice],
    hosts: Sequence[contract.Host],
    inventory: contract.Inventory,
    facts: str,
) -> str:
    """Return a text about all that would be touched, for the person who has to agree.

    Args:
        site: the file.
        choices: what becomes of each test.
        hosts: of the fabric.
        inventory: of the fabric.
        facts: a line about the node's kernel.
    """
    run = [choice for choice in choices if not choice.reason]
    left = [choice for choice in choices if choice.reason]
    host = next((candidate for candidate in hosts if candidate.id == site.node.host), None)
    ports = [_port(port) for port in free_ports(host)] if host is not None else []
    lines = [
        "This would be touched:",
        f"  fabric   {site.fabric.adapter} at {site.fabric.endpoint}",
        f"  host     {site.node.host}; free ports, any of which may be used: {', '.join(ports) or 'none'}",
        f"  node     {site.node.name} by `{' '.join(site.node.command)}`; {facts}",
        "           a node daemon and a kubelet double of this checkout run there, in a folder of their own below /run;",
        "           drivers are bound and unbound, slots powered on and off, for the listed devices alone",
    ]
    for device in site.devices:
        lines += _device(device, inventory.device(device.id), run)
    lines += [f"{len(run)} tests run:", *(f"  {choice.test.name}" for choice in run)]
    lines += [f"{len(left)} are left out:", *_left_out(left)]
    return "\n".join(lines) + "\n"


def _left_out(choices: Sequence[choice.Choice]) -> list[str]:
    """Return the lines about tests that are left out, by reason, since many share one."""
    lines = []
    for reason in dict.fromkeys(entry.reason for entry in choices):
        lines += [
            f"  {reason}:",
            *(f"    {entry.test.name}" for entry in choices if entry.reason == reason),
        ]
    return lines


def _port(port: contract.Port) -> str:
    return f"{port.id} (slot {port.slot_hint})" if port.slot_hint else port.id


def _device(
    listed: configuration.Device, seen: contract.Device | None, run: Sequence[choice.Choice]
) -> list[str]:
    using = [choice for choice in run if listed in choice.devices]
    writing = [choice for choice in using if choice.test.writes]
    model = f"{seen.model or 'unknown model'}, serial {seen.serial}" if seen is not None else "not there"
    done = f"attached and detached by {len(using)} tests" if using else "not used by any test"
    if writing:
        done += f", ITS CONTENTS ARE LOST in {len(writing)}"
    elif using:
        done += ", read and not written"
    return [f"  device   {listed.id} ({listed.device_class}, {model}): {done}"]
