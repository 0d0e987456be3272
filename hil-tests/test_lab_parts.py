"""The lab's own parts, without a guest."""

import asyncio
import contextlib
import lzma
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from lab import (
    agent,
    cluster,
    cpio,
    errors,
    initrd,
    laboratory,
    link,
    machine,
    modules,
    packages,
    reached,
    waiting,
)

from drawbar.driver.kube import client, config, kinds
from drawbar.driver.kube import errors as kube_errors

LAB = Path(__file__).parent
pytestmark = pytest.mark.short


def test_an_archive_has_the_cpio_format_and_the_same_bytes_each_time():
    entries = [
        cpio.folder("bin"),
        cpio.file("bin/tool", b"#!/bin/sh\n", executable=True),
        cpio.link("bin/other", "tool"),
        cpio.character_device("console", 5, 1),
    ]
    data = cpio.archive(entries)
    assert data == cpio.archive(entries)
    assert len(data) % 512 == 0
    unpacked = {}
    offset = 0
    while data[offset : offset + 6] == b"070701":
        fields = [int(data[offset + 6 + 8 * index : offset + 14 + 8 * index], 16) for index in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[offset + 110 : offset + 110 + name_size - 1].decode()
        offset += -(-(110 + name_size) // 4) * 4
        unpacked[name] = (stat.filemode(mode), data[offset : offset + size])
        offset += -(-size // 4) * 4
    assert unpacked == {
        "bin": ("drwxr-xr-x", b""),
        "bin/tool": ("-rwxr-xr-x", b"#!/bin/sh\n"),
        "bin/other": ("lrwxrwxrwx", b"tool"),
        "console": ("crw-------", b""),
        "TRAILER!!!": ("?---------", b""),
    }


def test_a_module_is_loaded_after_its_dependencies(tmp_path):
    for name, needed in {"nvme": "nvme-core", "nvme-core": "t10-pi,crc", "t10-pi": ""}.items():
        (tmp_path / f"{name}.ko").write_bytes(b"\x7fELF\0depends=" + needed.encode() + b"\0retpoline=Y\0")
    order = modules.load_order(["nvme"], modules.find(tmp_path), frozenset({"crc"}))
    assert order == ["t10_pi", "nvme_core", "nvme"]


def test_a_module_missing_from_the_package_is_named(tmp_path):
    with pytest.raises(errors.Unavailable, match="no module cxl_pci"):
        modules.load_order(["cxl_pci"], {}, frozenset())


def test_a_compressed_module_is_as_good_as_a_plain_one(tmp_path):
    (tmp_path / "dax_cxl.ko.xz").write_bytes(lzma.compress(b"\x7fELF\0depends=cxl-core\0retpoline=Y\0"))
    (tmp_path / "cxl-core.ko").write_bytes(b"\x7fELF\0depends=\0retpoline=Y\0")
    (tmp_path / "cxl-core.ko.sig").write_bytes(b"no module")
    files = modules.find(tmp_path)
    assert modules.load_order(["dax_cxl"], files, frozenset()) == ["cxl_core", "dax_cxl"]
    assert modules.content(files["dax_cxl"]).startswith(b"\x7fELF")


def test_a_newer_qemu_and_kernel_that_cannot_be_had_are_named_with_their_mirror(tmp_path, monkeypatch):
    if not packages.KEYRING.exists():
        pytest.skip(f"{packages.KEYRING} is Debian's")
    monkeypatch.setattr(packages, "MIRROR", "http://127.0.0.1:9/debian")
    with pytest.raises(
        errors.Unavailable, match=r"bookworm-backports of http://127.0.0.1:9/debian.*reachable"
    ):
        packages.newer(tmp_path)


def test_a_newer_qemu_and_kernel_of_the_cache_are_used_without_a_mirror(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "MIRROR", "http://127.0.0.1:9/debian")
    own = tmp_path / packages.BACKPORTS
    for path in (
        f"linux-image-6.12_1.{packages._KEPT}/boot/vmlinuz-6.12",
        f"linux-image-6.12_1.{packages._KEPT}/lib/modules/6.12/modules.builtin",
        "qemu-system-x86_10/usr/bin/qemu-system-x86_64",
        "qemu-system-data_10/usr/share/qemu/pvh.bin",
        "seabios_1/usr/share/seabios/bios.bin",
    ):
        (own / path).parent.mkdir(parents=True)
        (own / path).touch()
    qemu, kernel = packages.newer(tmp_path)
    assert (kernel.release, Path(qemu.program).name) == ("6.12", "qemu-system-x86_64")
    assert [path.name for path in qemu.data] == ["qemu", "seabios"]


def test_the_initrd_is_built_once_and_again_for_other_modules(tmp_path):
    folder = tmp_path / "lib/modules/6.1"
    folder.mkdir(parents=True)
    (folder / "modules.builtin").write_text("kernel/ext4.ko\n")
    for name in ("nvme", "overlay"):
        (folder / f"{name}.ko").write_bytes(b"\0depends=\0")
    kernel = packages.Kernel(release="6.1", image=folder / "vmlinuz", modules=folder)
    (tmp_path / "busybox").write_bytes(b"static")
    first = initrd.ensure_archive(tmp_path / "cache", kernel, tmp_path / "busybox", ("nvme", "ext4"))
    stamp = first.stat().st_mtime_ns
    assert initrd.ensure_archive(tmp_path / "cache", kernel, tmp_path / "busybox", ("nvme", "ext4")) == first
    assert first.stat().st_mtime_ns == stamp
    assert initrd.ensure_archive(tmp_path / "cache", kernel, tmp_path / "busybox", ("overlay",)) != first
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    ("missing", "remedy"), [("apt-cache", "needs apt and dpkg"), ("qemu-system-x86_64", "apt-get install")]
)
def test_a_program_missing_on_the_host_is_reported_with_a_remedy(tmp_path, missing, remedy):
    code = "from lab import packages; packages.qemu(); packages.kernel(packages.cache())"
    programs = tmp_path / "bin"
    programs.mkdir()
    if missing != "qemu-system-x86_64":
        (programs / "qemu-system-x86_64").write_text("#!/bin/sh\n")
        (programs / "qemu-system-x86_64").chmod(0o755)
    environment = {"PATH": str(programs), "PYTHONPATH": str(LAB), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lab.errors.Unavailable: ")
    assert missing in last
    assert remedy in last


async def test_a_slow_reader_holds_up_its_own_stream_and_no_other(tmp_path):
    async def serve(request, stream):
        if request["do"] == "flood":
            await stream.send_all(bytes(3 * link.WINDOW_BYTES))
        else:
            await stream.send_all(await stream.all())

    path = str(tmp_path / "s")
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(lambda *pair: accepted.set_result(pair), path)
    near = await asyncio.open_unix_connection(path)
    far = await accepted
    async with (
        server,
        link.linking(*near, first=1, handler=serve) as host,
        link.linking(*far, first=2, handler=serve),
        asyncio.timeout(20),
    ):
        flood = await host.open({"do": "flood"})
        for text in (b"one", b"two"):
            echo = await host.open({"do": "echo"})
            await echo.send(text)
            await echo.end()
            assert await echo.all() == text
        assert len(await flood.all()) == 3 * link.WINDOW_BYTES
        far[1].close()
        with pytest.raises(errors.LabError, match="closed"):
            await (await host.open({"do": "echo"})).all()
    near[1].close()


async def test_a_program_that_has_ended_takes_no_stream(tmp_path, monkeypatch):
    monkeypatch.setattr(link, "STREAMS_MAX", 4)
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(lambda *pair: accepted.set_result(pair), str(tmp_path / "s"))
    near = await asyncio.open_unix_connection(str(tmp_path / "s"))
    far = await accepted
    async with (
        asyncio.timeout(30),
        server,
        waiting.tasks() as tasks,
        link.linking(*far, first=2, handler=agent.Agent().handle),
    ):
        there = reached.Reached("there", tasks)
        carrying = tasks.create_task(there._carry(*near), name="link")
        await waiting.until(lambda: asyncio.sleep(0, there._link))
        for number in range(3 * link.STREAMS_MAX):
            assert await there.output("echo", str(number)) == f"{number}\n"
        carrying.cancel()
    for _, writer in (near, far):
        writer.close()


@pytest.mark.asyncio(loop_scope="session")
async def test_qemu_dies_with_the_process_that_started_it_and_its_folder_goes_with_the_next_lab(
    lab, tmp_path
):
    code = """
import asyncio, os, sys
from pathlib import Path
from lab import laboratory, machine
async def main():
    async with laboratory.Lab.running(Path(sys.argv[1])) as lab:
        print(lab.folder, flush=True)
        async with lab.guest(machine.Machine(name="orphan", ports=1, memory_mib=256)):
            pass
asyncio.run(main())
"""
    environment = os.environ | {"PYTHONPATH": str(LAB)}

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
        )

    with await asyncio.to_thread(start) as process:
        folder = Path(await asyncio.to_thread(lambda: process.stdout.readline().strip()))

        async def list_children():
            return children_of(process.pid) if exists(folder / "orphan.link") else []

        children = await waiting.until(list_children)
        process.send_signal(signal.SIGKILL)

    async def alive():
        return [pid for pid in children if exists(f"/proc/{pid}/exe")]

    await waiting.until(alive, lambda running: not running, 10)
    assert exists(folder), "no process could delete it"
    with laboratory._folder():
        assert not exists(folder)
        assert exists(lab.folder), "the folder of a lab that lives"


def children_of(pid):
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_command_line_has_a_native_hot_plug_port_for_each_slot():
    made = machine.Machine(name="w", ports=2, cxl_ports=1)
    paths = machine.MachinePaths.from_folders(Path("/f"), Path("/l"), "w")
    kernel = packages.Kernel(release="6.1", image=Path("/k"), modules=Path("/m"))
    words = machine.command(
        made,
        paths,
        qemu=packages.Qemu(program="qemu"),
        kernel=kernel,
        initrd=Path("/i"),
        agent="agent",
    )
    ports = [word for word in words if word.startswith(("pcie-root-port", "cxl-rp"))]
    assert [port.rpartition("slot=")[2] for port in ports] == ["1", "2", "101"]
    assert "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off" in words


def exists(path):
    return Path(path).exists()


async def test_the_policies_restrict_a_node_to_its_own_slices(tmp_path):
    async with cluster.Cluster.running(tmp_path) as running:
        running.kubeconfig("node", "drawbar:drawbar-node", node="worker-1")
        async with client.connecting(config.from_kubeconfig(tmp_path / "node.kubeconfig")) as node:
            for name in ("worker-1", "worker-2"):
                pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
                spec = {"driver": "drawbar.dev", "nodeName": name, "pool": pool, "devices": []}
                body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "spec": spec}
                refused = pytest.raises(kube_errors.KubeError, match="its own node alone")
                with contextlib.nullcontext() if name == "worker-1" else refused:
                    await node.create(kinds.SLICE, body | {"metadata": {"name": name}}, into=dict)
