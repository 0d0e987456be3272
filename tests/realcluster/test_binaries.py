"""Which programs are there, which are missing, and which release they are."""

import re

import pytest
from realcluster import binaries, errors


def program(folder, name, version):
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ("Kubernetes v1.36.2", (1, 36, 2)),
        ("Kubernetes v1.31.14-beta.1+0123456", (1, 31, 14)),
        ("etcd Version: 3.5.16\nGit SHA: 1\nGo Version: go1.24.0", (3, 5, 16)),
    ],
)
def test_the_release_is_read_from_a_programs_output(printed, release):
    parsed = binaries.Release.parse(printed)
    assert (parsed.major, parsed.minor, parsed.patch) == release


def test_a_program_without_a_version_is_refused():
    with pytest.raises(errors.Unavailable, match="no version"):
        binaries.Release.parse("hello")


@pytest.mark.parametrize(
    ("present", "line"),
    [
        (binaries.CONTROL_PLANE, ""),
        (
            ("kube-apiserver", "kube-scheduler", "etcd"),
            "kube-controller-manager is not there: docs/development/checks.md says where to get the binaries of a release",
        ),
        (
            ("kube-apiserver", "kube-controller-manager"),
            "kube-scheduler, etcd are not there: docs/development/checks.md says where to get the binaries of a release",
        ),
    ],
)
def test_one_line_names_the_missing_binaries(present, line):
    assert binaries.describe_missing(present) == line


def test_etcd_may_be_elsewhere_and_the_kubelet_may_be_missing(tmp_path):
    kubernetes, elsewhere = tmp_path / "k", tmp_path / "e"
    kubernetes.mkdir()
    elsewhere.mkdir()
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        program(kubernetes, name, "Kubernetes v1.34.9")
    with pytest.raises(errors.Unavailable, match=f"in {re.escape(str(kubernetes))} etcd is not there"):
        binaries.find(kubernetes, search="")
    program(elsewhere, "etcd", "etcd Version: 3.4.23")
    with pytest.raises(errors.Unavailable, match=r"etcd is 3\.4\.23: etcd 3\.5 or later is needed"):
        binaries.find(kubernetes, search=str(elsewhere))
    program(elsewhere, "etcd", "etcd Version: 3.5.16")
    installed = binaries.find(kubernetes, search=str(elsewhere))
    assert (installed.release.name, str(installed.etcd_release), installed.has_kubelet) == (
        "1.34",
        "3.5.16",
        False,
    )
    assert installed.path("etcd") == elsewhere / "etcd"
    assert installed.path("kube-scheduler") == kubernetes / "kube-scheduler"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(errors.Unavailable, match="set KUBERNETES_BIN"):
        binaries.find(tmp_path / "nowhere")
