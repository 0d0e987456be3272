"""`drawbar report` against an API server: the archive, and its refusals."""

import json
import tarfile

import pytest

from drawbar.driver import main
from drawbar.driver.kube import kinds


def report(*words):
    return main.main(["report", *map(str, words)])


def test_the_archive_holds_diagnosis_status_objects_and_recordings(cluster, tmp_path, capsys):
    folder = tmp_path / "host-7"
    (folder / "sys").mkdir(parents=True)
    (folder / "sys" / "uevents").write_text("recorded")
    path = tmp_path / "r.tar.gz"
    assert report("--to", path, "--recording", folder) == 0
    assert "look through it before you send it" in capsys.readouterr().out
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        content = {
            member.name.removeprefix("drawbar-report/"): archive.extractfile(member).read()
            for member in archive.getmembers()
        }
    assert json.loads(content["doctor.json"])["kind"] == "Diagnosis"
    assert b"fabric rack-1" in content["status.txt"]
    assert json.loads(content["status.json"])["fabrics"][0]["name"] == "rack-1"
    (fabric,) = json.loads(content["objects/fabrics.json"])["items"]
    assert fabric["metadata"]["name"] == "rack-1"
    assert "managedFields" not in fabric["metadata"]
    assert content["recordings/host-7/sys/uevents"] == b"recorded"
    assert not any("secret" in name.lower() for name in content)


def test_a_pod_without_a_log_is_named_as_missing(cluster, tmp_path):
    async def create(api):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "drawbar-controller-0"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        await api.create(kinds.POD, body, into=dict, namespace="drawbar")

    cluster(create)
    path = tmp_path / "r.tar.gz"
    assert report("--to", path) == 0
    with tarfile.open(path) as archive:
        missing = archive.extractfile("drawbar-report/missing.txt").read().decode()
    assert "log of pod drawbar-controller-0" in missing


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to", "{tmp}/there"), "cannot write"),
        (("--recording", "{tmp}/none"), "cannot read the recording"),
    ],
)
def test_a_file_that_is_in_the_way_or_missing_is_refused(cluster, tmp_path, capsys, words, sentence):
    (tmp_path / "there").write_text("mine")
    assert report(*(word.format(tmp=tmp_path) for word in words)) == 2
    assert sentence in capsys.readouterr().err
    assert (tmp_path / "there").read_text() == "mine"
