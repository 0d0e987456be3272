"""A node with real containers, in namespaces of its own: containerd, and a kubelet on it.

    python container_node.py FILE            # on the host: the whole node, until it is killed
    python container_node.py --inside FILE   # its first process, in namespaces of network, mounts and processes

FILE holds a `Node` as JSON. Everything ends with the first process: containers, mounts, addresses. So the machine stays
as it was, and several such nodes may run beside each other. The node reaches one port of the host's loopback, the API
server's: at the same address, and at that of the Service `kubernetes`, as kube-proxy would have it. It imports nothing
of Drawbar.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHUNK_BYTES = 1 << 16
START_SECONDS = 60.0
POLL_SECONDS = 0.1
CGROUP_SECONDS = 10.0
CPU_SHARES, CPU_WEIGHT = 16384, 1600
"""Sixteen times what one other program has, by the two versions of cgroups."""
POD_NETWORK = "10.244.1.0/24"
ADDRESS = "10.244.0.1"
"""The node's own."""
SERVICE_PORT = 443
NAMESPACE_OF_IMAGES = "k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node.

    Attributes:
        folder: for its state; below it `log` is the node's /var/log.
        containerd: the program; `ctr` and the shim lie beside it.
        runc: the program.
        cni: the folder of the CNI plugins.
        images: archives that are imported before the kubelet starts.
        pause: the image of sandboxes.
        kubelet: its command line.
        apiserver: the port of the host's loopback.
        service: the address of the Service `kubernetes`; empty where the API server is reached already.
        memory: what is in memory of the node's own; nothing on a machine that is a node's alone.
        binds: by path in the node the path on the host that is there, too.
    """

    folder: str
    containerd: str
    runc: str
    cni: str
    images: Sequence[str]
    pause: str
    kubelet: Sequence[str]
    apiserver: int = 0
    service: str = ""
    memory: Sequence[str] = ("/run", "/var/lib/kubelet")
    binds: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Return the folder."""
        return Path(self.folder)

    @property
    def endpoint(self) -> str:
        """Return the endpoint of the container runtime."""
        return f"unix://{self.path / 'containerd.sock'}"


def runtime_configuration(node: Node) -> str:
    """Return containerd's configuration, version 2: CDI on, cgroups made by it, no AppArmor."""
    return f"""version = 2
root = "{node.path / "root"}"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{node.path / "containerd.sock"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{node.pause}"
  # Not everybody who is root may lower a process's score.
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{node.runc}"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{node.cni}"
    conf_dir = "{node.path / "cni"}"
"""


def network() -> dict[str, object]:
    """Return the configuration of the pods' network: each pod has an address, and reaches the node alone."""
    ipam = {"type": "host-local", "subnet": POD_NETWORK, "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "ptp", "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, other: tuple[str, int] | str
) -> None:
    try:
        if isinstance(other, str):
            there, back = await asyncio.open_unix_connection(other)
        else:
            there, back = await asyncio.open_connection(*other)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, back), _pump(there, writer))


async def _on_the_host(node: Node, file: Path) -> int:
    """Serve the API server's port on a UNIX socket, and run the node."""
    door = node.path / "apiserver.sock"
    door.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(
        lambda reader, writer: _join(reader, writer, ("127.0.0.1", node.apiserver)), str(door)
    )
    inside = [sys.executable, "-I", "-S", __file__, "--inside", str(file)]
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    async with server:
        process = await asyncio.create_subprocess_exec("setpriv", "--pdeathsig", "KILL", *spaces, *inside)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, process.kill)
        status = await process.wait()
    _remove_cgroups()
    return status


async def _forward(node: Node) -> None:
    """Join connections to the API server's addresses in the node with the UNIX socket."""
    door = str(node.path / "apiserver.sock")
    for address, port in (("127.0.0.1", node.apiserver), (node.service, SERVICE_PORT)):
        await asyncio.start_server(lambda reader, writer: _join(reader, writer, door), address, port)
    await asyncio.get_running_loop().create_future()


def _inside(node: Node, file: Path) -> int:
    """Be the node's first process: start its programs, reap orphans, and return when a program ends."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for name in ("log", "root"):
        (node.path / name).mkdir(parents=True, exist_ok=True)
    for words in (
        ["ip", "link", "set", "lo", "up"],
        *(
            ["ip", "address", "add", f"{address}/32", "dev", "lo"]
            for address in (node.service, ADDRESS)
            if address
        ),
        # Containers see mounts that come later; nothing goes back to the host.
        ["mount", "--make-rshared", "/"],
        *(["mount", "-t", "tmpfs", "tmpfs", path] for path in node.memory),
        ["mount", "--bind", str(node.path / "log"), "/var/log"],
    ):
        _do(words)
    for name in ("/run/cdi", "/run/lock"):
        Path(name).mkdir(exist_ok=True)
    for path, source in node.binds.items():
        Path(path).mkdir(parents=True, exist_ok=True)
        _do(["mount", "--bind", source, path])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    children = {_start_runtime(node)}
    if node.service:
        forwarder = [sys.executable, "-I", "-S", __file__, "--forward", str(file)]
        children.add(_start(forwarder, node, "forwarder"))
    _prefer_containers()
    ctr = str(Path(node.containerd).with_name("ctr"))
    for image in node.images:
        words = [ctr, "-a", str(node.path / "containerd.sock"), "-n", NAMESPACE_OF_IMAGES, "images", "import"]
        _do([*words, image])
    children.add(_start(list(node.kubelet), node, "kubelet"))
    while True:
        pid, status = os.wait()
        if pid in children:
            return os.waitstatus_to_exitcode(status) or 1


def _start_runtime(node: Node) -> int:
    (node.path / "containerd.toml").write_text(runtime_configuration(node))
    (node.path / "cni").mkdir(exist_ok=True)
    (node.path / "cni" / "10-pods.conflist").write_text(json.dumps(network()))
    (node.path / "containerd.sock").unlink(missing_ok=True)
    pid = _start([node.containerd, "-c", str(node.path / "containerd.toml")], node, "containerd")
    deadline = time.monotonic() + START_SECONDS
    while not _answers(node.path / "containerd.sock"):
        if time.monotonic() > deadline or os.waitpid(pid, os.WNOHANG)[0]:
            sys.exit(f"containerd does not serve: see {node.path / 'containerd.log'}")
        time.sleep(POLL_SECONDS)
    return pid


def _prefer_containers() -> None:
    """Give all containers together more processor weight than the rest of this machine, as on a node of its own."""
    for name, value in (("cpu.shares", CPU_SHARES), ("cpu.weight", CPU_WEIGHT)):
        for parent in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
            if not (parent / "cgroup.procs").exists():
                continue
            # Where there is no such controller, containers get what they get.
            with contextlib.suppress(OSError):
                (parent / NAMESPACE_OF_IMAGES).mkdir(exist_ok=True)
                (parent / NAMESPACE_OF_IMAGES / name).write_text(str(value))


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trial:
        return trial.connect_ex(str(path)) == 0


def _start(words: list[str], node: Node, name: str) -> int:
    environment = {**os.environ, "PATH": f"{Path(node.containerd).parent}:/usr/sbin:/usr/bin:/sbin:/bin"}
    with (node.path / f"{name}.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env=environment).pid


def _do(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def _remove_cgroups() -> None:
    """Delete what killed containers leave behind: empty groups, below one that is named by containerd's namespace."""
    deadline = time.monotonic() + CGROUP_SECONDS
    while time.monotonic() < deadline:
        left = list(Path("/sys/fs/cgroup").glob(f"**/{NAMESPACE_OF_IMAGES}"))
        if not left:
            return
        for groups in left:
            for folder, _, _ in os.walk(groups, topdown=False):
                # Processes that were killed are there until the kernel is done with them; others are not ours.
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
        time.sleep(POLL_SECONDS)


def as_json(node: Node) -> str:
    """Return the node as JSON, for the programs of this module."""
    return json.dumps(dataclasses.asdict(node))


def describe_missing(node: Node) -> str:
    """Return the programs that a node needs and that are not there, in one line; empty if none is missing."""
    packages = {
        node.containerd: "containerd 1.7 or later",
        str(Path(node.containerd).with_name("ctr")): "ctr of containerd",
        node.runc: "runc",
        f"{node.cni}/ptp": "the CNI plugin ptp (containernetworking-plugins)",
        f"{node.cni}/host-local": "the CNI plugin host-local (containernetworking-plugins)",
        **{name: name for name in ("unshare", "setpriv", "ip", "mount")},
    }
    missing = [what for program, what in packages.items() if shutil.which(program) is None]
    return (
        f"{', '.join(missing)}: not there; CONTAINERD, RUNC and CNI_BIN name them elsewhere"
        if missing
        else ""
    )


def _main(words: list[str]) -> int:
    file = Path(words[-1])
    node = Node(**json.loads(file.read_text()))
    match words[:-1]:
        case ["--inside"]:
            return _inside(node, file)
        case ["--forward"]:
            asyncio.run(_forward(node))
            return 1
        case _:
            return asyncio.run(_on_the_host(node, file))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
