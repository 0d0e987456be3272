"""What the daemon needs of the pod it runs in, judged from what was seen.

Without some of it the daemon is of no use, and does not start; without the rest something will not work, and
that is said at the start. Everything is said at once, each with the capability, the mount or the field of the
pod that is missing. A mocked tree needs no privilege, so only the host itself is asked for capabilities.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drawbar.driver.node.operation import host

Access = host.Access
Capability = host.Capability


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is missing, in sentences.

    Attributes:
        fatal: the daemon would be of no use.
        warnings: what will not work.
    """

    fatal: tuple[str, ...]
    warnings: tuple[str, ...]


def judged(facts: host.Facts, *, on_host: bool, in_pod: bool) -> Findings:
    """What is missing.

    Args:
        facts: what was seen.
        on_host: the kernel's own devices and uevents are meant, not a mocked tree.
        in_pod: the directories must be mounts of the host's.
    """
    fatal = [*_directories(facts.directories), *_sources(facts, on_host=on_host)]
    warnings = [*(_mounts(facts.directories) if in_pod else ()), *(_privileges(facts) if on_host else ())]
    if facts.sysfs_readable and facts.sysfs.access is not Access.FINE:
        warnings.append(_sysfs(facts.sysfs))
    return Findings(fatal=tuple(fatal), warnings=tuple(warnings))


def sentence(findings: Findings) -> str:
    """All of it, for somebody who sees nothing else."""
    lines = [*findings.fatal, *(f"besides: {warning}" for warning in findings.warnings)]
    if len(lines) == 1:
        return lines[0]
    listed = "".join(f"\n  - {line}" for line in lines)
    return f"the daemon cannot run here, {len(lines)} things are missing:{listed}"


def _directories(places: Sequence[host.Place]) -> Iterator[str]:
    remedies = {
        Access.READ_ONLY: "it is mounted read-only; mount it read-write",
        Access.DENIED: "permission denied; run as root (runAsUser: 0)",
        Access.NOT_A_DIRECTORY: "it is not a directory; mount the host's directory there",
    }
    for place in places:
        if place.access is not Access.FINE:
            at = "" if place.found == place.path else f" ({place.found})"
            yield f"cannot write {place.path}{at}: {remedies[place.access]}"


def _sources(facts: host.Facts, *, on_host: bool) -> Iterator[str]:
    if not facts.boot_id:
        yield "cannot read /proc/sys/kernel/random/boot_id; mount /proc"
    if not facts.sysfs_readable:
        root = facts.sysfs.path.parents[1]
        yield f"{root} is not a sysfs tree with a PCI bus; mount the host's /sys, or name one with --sysfs"
    if on_host and facts.uevents is not None:
        yield (
            f"cannot hear the kernel's uevents: {facts.uevents}; allow AF_NETLINK sockets (seccompProfile, SELinux)"
        )


def _mounts(places: Sequence[host.Place]) -> Iterator[str]:
    for place in places:
        if place.mount == "/":
            yield f"{place.path} is in the container's own filesystem; mount the host's (hostPath) at the same path"
        # A filesystem of the host may itself be mounted somewhere, or begin below its root; one end must fit.
        elif place.mount and not _same(place.source, place.mount):
            yield (
                f"{place.mount} shows {place.source} of the host; mount it at the same path, since the kubelet and the "
                f"container runtime are told paths"
            )


def _same(source: str, mount: str) -> bool:
    return source == "/" or mount.endswith(source) or source.endswith(mount)


def _privileges(facts: host.Facts) -> Iterator[str]:
    lacking = frozenset(Capability) - facts.capabilities if facts.capabilities is not None else frozenset()
    consequences = {
        Capability.CAP_SYS_ADMIN: (
            "PCI configuration space cannot be read beyond 64 bytes, so devices have no serial number from there and "
            "no fabric device without another one is recognised"
        ),
        Capability.CAP_NET_ADMIN: "a burst of uevents overflows the usual buffer, and then everything is read again",
        Capability.CAP_SYS_PTRACE: "who has a device open cannot be seen, so a device in use may be released",
    }
    # The first of the two includes the second.
    if lacking >= {Capability.CAP_DAC_OVERRIDE, Capability.CAP_DAC_READ_SEARCH}:
        consequences[Capability.CAP_DAC_READ_SEARCH] = (
            "who of other users has a device open cannot be seen, so a device in use may be released"
        )
    for capability, consequence in consequences.items():
        if capability in lacking:
            yield f"{capability.name} is missing (securityContext.capabilities.add, or privileged): {consequence}"
    if facts.first_namespaces["pid"] is False:
        yield "the host's processes cannot be seen (hostPID: true): a device in use may be released"
    if facts.first_namespaces["user"] is False:
        yield "the kernel sends no uevents into a user namespace (hostUsers: true): no hot-plug will be noticed"


def _sysfs(place: host.Place) -> str:
    root = place.path.parents[1]
    reasons = {
        Access.READ_ONLY: f"{root} is mounted read-only; mount it read-write (privileged: true)",
        Access.DENIED: f"{root} cannot be written; run as root with CAP_DAC_OVERRIDE",
        Access.NOT_A_DIRECTORY: f"{place.path} is not a directory",
    }
    return f"{reasons[place.access]}: slots cannot be powered, drivers not bound, and devices not released"
