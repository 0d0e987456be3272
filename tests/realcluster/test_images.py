"""The images for real containers, and what a node with them needs; nothing is started here."""

import dataclasses
import hashlib
import json
import tarfile

import pytest
from realcluster import container_node, errors, images

NODE = container_node.Node(
    folder="/somewhere",
    containerd="/no/containerd",
    runc="/bin/sh",
    cni="/no/cni",
    images=(),
    pause=images.BUSYBOX,
    kubelet=("kubelet", "--v=1"),
    apiserver=6443,
    service="10.96.0.1",
    memory=("/run",),
)


@pytest.fixture
def busybox(tmp_path, monkeypatch):
    """Put a program `busybox` on PATH; make an image of it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "busybox").write_text("#!/bin/sh\n")
    (folder / "busybox").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return images.busybox(tmp_path / "image.tar")


def test_an_image_is_an_archive_whose_layer_has_the_digest_that_its_configuration_names(busybox):
    with tarfile.open(busybox) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        configuration = json.load(tar.extractfile(manifest["Config"]))
        layer = tar.extractfile(manifest["Layers"][0])
        content = layer.read()
        layer.seek(0)
        with tarfile.open(fileobj=layer) as files:
            names = {file.name: file.linkname for file in files}
    assert manifest["RepoTags"] == [images.BUSYBOX]
    assert configuration["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert names["bin/sh"] == "busybox"
    assert {"bin/busybox", "dev", "proc", "sys"} <= names.keys()


def test_a_machine_without_busybox_is_told_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.Unavailable, match="apt-get install busybox-static"):
        images.busybox(tmp_path / "image.tar")


def test_an_archive_that_was_made_before_is_used_under_its_own_name(busybox, monkeypatch, tmp_path):
    monkeypatch.setenv(images.ARCHIVE, str(busybox))
    assert images.drawbar(tmp_path) == (busybox, images.BUSYBOX)
    (tmp_path / "nothing.tar").write_bytes(b"nothing")
    monkeypatch.setenv(images.ARCHIVE, str(tmp_path / "nothing.tar"))
    with pytest.raises(errors.Unavailable, match=r"nothing\.tar is no archive of a named image"):
        images.drawbar(tmp_path)


def test_a_containerfile_that_does_not_build_is_a_failure_and_a_missing_builder_is_not(tmp_path, monkeypatch):
    monkeypatch.delenv(images.ARCHIVE, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path / "mmdebstrap", 'for last; do :; done; : >"$last"')
    program(tmp_path / "podman", '[ "$1" != build ] || { echo no wheel >&2; exit 1; }')
    with pytest.raises(
        errors.RealClusterError, match="podman build failed: no wheel; PODMAN_BUILD"
    ) as caught:
        images.drawbar(tmp_path)
    assert not isinstance(caught.value, errors.Unavailable)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(errors.Unavailable, match="apt-get install mmdebstrap"):
        images.drawbar(tmp_path)


def program(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_missing_programs_of_a_container_node_are_one_line():
    line = container_node.describe_missing(NODE)
    assert "containerd 1.7 or later" in line
    assert "the CNI plugin ptp" in line
    assert "runc" not in line
    assert "\n" not in line


def test_the_runtime_looks_for_cdi_files_and_uses_the_programs_that_are_named():
    text = container_node.runtime_configuration(NODE)
    assert 'cdi_spec_dirs = ["/var/run/cdi"]' in text
    assert 'BinaryName = "/bin/sh"' in text
    assert f'sandbox_image = "{images.BUSYBOX}"' in text


def test_a_node_is_the_same_after_it_was_written_and_read():
    node = dataclasses.replace(NODE, binds={"/a": "/b"})
    read = json.loads(container_node.as_json(node))
    assert container_node.Node(**{name: _tuple(value) for name, value in read.items()}) == node


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value
