"""What the daemon says when its pod lacks a privilege or a mount: everything at once, with the remedy."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from drawbar.driver.node.operation import host
from drawbar.mocks import sysfs

Access, Capability = host.Access, host.Capability


def place(path="/k", **changes):
    return msgspec.structs.replace(
        host.HostPath(path=Path(path), access=Access.FINE, existing=Path(path), source=path, mount=path),
        **changes,
    )


# A privileged pod with everything mounted.
ALL = host.Facts(
    capabilities=frozenset(Capability),
    first_namespaces={"user": True, "pid": True},
    boot_id=True,
    sysfs_readable=True,
    sysfs=place("/sys/bus/pci"),
    directories=(place("/k"), place("/cdi")),
    uevents=None,
)


def find_missing(on_host=True, in_pod=True, **changes):
    return host.find_missing(msgspec.structs.replace(ALL, **changes), on_host=on_host, in_pod=in_pod)


def test_a_pod_with_everything_has_nothing_to_complain_of():
    assert find_missing() == host.Findings(fatal=(), warnings=())


FATAL = {
    "read-only": (
        {"directories": (place(access=Access.READ_ONLY),)},
        "cannot write /k: it is mounted read-only",
    ),
    "another-user": ({"directories": (place(access=Access.DENIED),)}, "runAsUser: 0"),
    "a-file": (
        {"directories": (place("/k/p", access=Access.NOT_A_DIRECTORY, existing=Path("/k")),)},
        "cannot write /k/p (/k): it is not a directory",
    ),
    "no-proc": ({"boot_id": False}, "mount /proc"),
    "no-sysfs": ({"sysfs_readable": False}, "/sys is not a sysfs tree with a PCI bus"),
    "no-netlink": ({"uevents": "Operation not permitted"}, "AF_NETLINK"),
}


@pytest.mark.parametrize("case", FATAL)
def test_without_this_the_daemon_does_not_start(case):
    changes, expected = FATAL[case]
    (reported,) = find_missing(**changes).fatal
    assert expected in reported


WARNINGS = {
    "config-space": ({"capabilities": ALL.capabilities - {Capability.CAP_SYS_ADMIN}}, "beyond 64 bytes"),
    "buffer": ({"capabilities": ALL.capabilities - {Capability.CAP_NET_ADMIN}}, "overflows"),
    "users": (
        {"capabilities": ALL.capabilities - {Capability.CAP_SYS_PTRACE}},
        "programs with an open device",
    ),
    "users-of-others": (
        {"capabilities": ALL.capabilities - {Capability.CAP_DAC_OVERRIDE, Capability.CAP_DAC_READ_SEARCH}},
        "CAP_DAC_READ_SEARCH is missing",
    ),
    "host-processes": ({"first_namespaces": {"user": True, "pid": False}}, "hostPID: true"),
    "user-namespace": ({"first_namespaces": {"user": False, "pid": True}}, "hostUsers: true"),
    "sysfs-read-only": (
        {"sysfs": place("/sys/bus/pci", access=Access.READ_ONLY)},
        "/sys is mounted read-only",
    ),
    "sysfs-denied": ({"sysfs": place("/sys/bus/pci", access=Access.DENIED)}, "CAP_DAC_OVERRIDE"),
    "not-mounted": ({"directories": (place(mount="/", source="/"),)}, "container's own filesystem"),
    "another-path": ({"directories": (place(source="/var/other"),)}, "at the same path"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_without_this_something_will_not_work(case):
    changes, expected = WARNINGS[case]
    findings = find_missing(**changes)
    assert findings.fatal == ()
    (reported,) = findings.warnings
    assert expected in reported


@pytest.mark.parametrize(
    ("source", "mount"),
    [
        ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins"),
        ("/lib/kubelet/plugins", "/var/lib/kubelet/plugins"),  # /var is a filesystem of its own
        ("/", "/var/lib/kubelet"),
        ("/@/var/lib/kubelet", "/var/lib/kubelet"),  # a subvolume
    ],
)
def test_a_mount_at_the_same_path_is_accepted_on_any_filesystem(source, mount):
    assert find_missing(directories=(place(source=source, mount=mount),)).warnings == ()


@pytest.mark.parametrize("other", [Capability.CAP_DAC_OVERRIDE, Capability.CAP_DAC_READ_SEARCH])
def test_either_of_two_capabilities_lets_it_look_into_the_processes_of_other_users(other):
    assert find_missing(capabilities=ALL.capabilities - {other}).warnings == ()


def test_a_mocked_tree_needs_no_privilege():
    poor = {
        "capabilities": frozenset(),
        "first_namespaces": {"user": False, "pid": False},
        "uevents": "denied",
    }
    assert find_missing(on_host=False, in_pod=False, **poor) == host.Findings(fatal=(), warnings=())


def test_unreadable_facts_cause_no_complaint():
    blind = {"capabilities": None, "first_namespaces": {"user": None, "pid": None}}
    assert find_missing(**blind) == host.Findings(fatal=(), warnings=())


def test_all_missing_prerequisites_are_listed_in_one_message():
    findings = find_missing(boot_id=False, uevents="denied", capabilities=frozenset())
    lines = host.sentence(findings).splitlines()
    assert lines[0] == "the daemon cannot run here, 6 things are missing:"
    assert sum(line.startswith("  - besides: ") for line in lines) == 4
    alone = find_missing(boot_id=False)
    assert host.sentence(alone) == alone.fatal[0]


STATUS = "Name:\tx\nCapEff:\t{:016x}\nCapBnd:\t0\n"
MOUNTINFO = """\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:1 /var/lib/kubelet /var/lib/kubelet rw - ext4 /dev/sda1 rw
22 21 8:2 /of\\040two\\134words {inside} rw - ext4 /dev/sdb rw
23 20 8:3 /below {inside} rw - ext4 /dev/sdc rw
torn
"""


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "status").write_text(STATUS.format(1 << Capability.CAP_SYS_ADMIN | 1 << 40))
    (folder / "self" / "mountinfo").write_text(MOUNTINFO.format(inside=tmp_path))
    (folder / "self" / "ns" / "user").symlink_to(f"user:[{host.FIRST_NAMESPACES['user']}]")
    (folder / "self" / "ns" / "pid").symlink_to("pid:[4026532000]")
    return folder


def test_the_facts_are_read_from_proc(tmp_path, proc):
    sysfs.SysfsTree.create(tmp_path / "sys")
    facts = host.facts(
        (tmp_path / "a" / "b", tmp_path / "proc" / "self" / "status" / "x"), tmp_path / "sys", proc=proc
    )
    assert facts.capabilities == {Capability.CAP_SYS_ADMIN}
    assert facts.first_namespaces == {"user": True, "pid": False}
    assert not facts.boot_id
    assert facts.sysfs_readable
    assert facts.sysfs.access is Access.FINE
    missing, inside_a_file = facts.directories
    assert (missing.access, missing.existing) == (Access.FINE, tmp_path)
    # Of two mounts on one place the later is seen.
    assert (missing.source, missing.mount) == ("/below", str(tmp_path))
    assert (inside_a_file.access, inside_a_file.existing) == (
        Access.NOT_A_DIRECTORY,
        proc / "self" / "status",
    )


def test_a_path_behind_a_link_belongs_to_the_links_target_mount(tmp_path, proc):
    """As /var/run, which is a link to /run, where the mount is."""
    (tmp_path / "run" / "cdi").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("../run")
    line = f"24 20 8:3 /run/cdi {tmp_path}/run/cdi rw - tmpfs tmpfs rw\n"
    (proc / "self" / "mountinfo").write_text(f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}")
    (place,) = host.facts((tmp_path / "var" / "run" / "cdi",), tmp_path / "sys", proc=proc).directories
    assert (place.source, place.mount) == ("/run/cdi", f"{tmp_path}/run/cdi")


def test_names_in_the_mount_table_are_unescaped(proc, tmp_path):
    assert ("/of two\\words", str(tmp_path)) in tuple(host._mounts(proc))


def test_without_proc_nothing_is_known(tmp_path):
    facts = host.facts((tmp_path,), tmp_path / "sys", proc=tmp_path / "none")
    assert (facts.capabilities, facts.boot_id, facts.sysfs_readable) == (None, False, False)
    assert facts.first_namespaces == {"user": None, "pid": None}
    assert facts.directories[0].access is Access.FINE


# --- for real ---

UNPRIVILEGED_ID = 65_534
RUNS_AS_ROOT = os.geteuid() == 0


@pytest.fixture
def pod(tmp_path):
    """Return the words of a daemon on the host's own kernel, whose API server does not answer."""
    # Another user must get to the files, whatever the mode of pytest's own directories is.
    folder = Path("/tmp") / f"drawbar-{os.getpid()}-{tmp_path.name}"
    folder.mkdir()
    folder.chmod(0o755)
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(content))
    sysfs.SysfsTree.create(folder / "sys")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def words(folder, **changes):
    options = {
        "node-name": "node-1",
        "kubeconfig": folder / "kubeconfig",
        "kubelet-dir": folder / "k",
        "cdi-dir": folder / "cdi",
        "sysfs": folder / "sys",
        "uevents": "kernel",
        "log-format": "json",
    }
    chosen = options | {name.replace("_", "-"): value for name, value in changes.items()}
    return [f"--{name}={value}" for name, value in chosen.items()]


def program(arguments, *before):
    # The interpreter of the virtual environment may lie where another user cannot go.
    return [*before, sys.executable, "-m", "drawbar.driver.main", "node", *arguments]


def runs_as_another(tmp_path):
    """Return whether another user could start this interpreter at all."""
    if not RUNS_AS_ROOT or shutil.which("setpriv") is None:
        return False
    command = [*WITHOUT, sys.executable, "-c", "import drawbar.driver.main"]
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0


WITHOUT = ("setpriv", f"--reuid={UNPRIVILEGED_ID}", f"--regid={UNPRIVILEGED_ID}", "--clear-groups")


def test_an_unprivileged_start_says_all_that_is_missing(pod):
    if RUNS_AS_ROOT and not runs_as_another(pod):
        # Root without capabilities is as powerless as another user, where the files are another's.
        before = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
        os.chown(pod, UNPRIVILEGED_ID, UNPRIVILEGED_ID)
    else:
        before = WITHOUT if RUNS_AS_ROOT else ()
        pod.chmod(0o555)
    done = subprocess.run(
        program(words(pod), *before), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    message = done.stderr[done.stderr.index("error: ") :]
    for expected in ("plugins_registry", "plugins/drawbar.dev", str(pod / "cdi"), "runAsUser: 0"):
        assert expected in message
    for expected in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE"):
        assert expected in message


@pytest.mark.tool("root")
async def test_without_capabilities_the_daemon_starts_and_warns(pod):
    before = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
    process = await asyncio.create_subprocess_exec(
        *program(words(pod), *before), stderr=asyncio.subprocess.PIPE
    )
    try:
        reported = []
        async with asyncio.timeout(120):
            while not any("got no answer" in line for line in reported):
                reported.append(json.loads(await process.stderr.readline())["message"])
        for expected in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_PTRACE"):
            assert any(expected in line for line in reported)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.tool("root")
def test_read_only_mounts_are_named(pod):
    for name in ("k", "cdi", "sys"):
        (pod / name).mkdir(exist_ok=True)
    read_only = " && ".join(
        f"mount --bind {pod / name} {pod / name} && mount -o remount,ro,bind {pod / name}"
        for name in ("cdi", "sys")
    )
    script = f'{read_only} && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", script, "sh")
    done = subprocess.run(
        program(words(pod), *before), capture_output=True, text=True, check=False, timeout=60
    )
    if "mount" in done.stderr and "error:" not in done.stderr:
        pytest.skip("this root may not mount")
    assert done.returncode == 1
    assert f"cannot write {pod / 'cdi'}: it is mounted read-only" in done.stderr
    assert f"besides: {pod / 'sys'} is mounted read-only" in done.stderr
