"""The runtime of the kubelet double: CDI edits merged into an OCI runtime spec."""

import json
from pathlib import Path
from typing import Any

import pytest

from drawbar.mocks.kubelet import errors, runtime


def spec(
    folder: Path, name: str, *devices: dict[str, Any], kind: str = "example.com/x", **edits: Any
) -> None:
    content = {"cdiVersion": "0.5.0", "kind": kind, "devices": list(devices), "containerEdits": edits}
    (folder / name).write_text(json.dumps(content))


def device(name: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": edits}


def create(folder: Path, *ids: str, container: dict[str, Any] | None = None, check: bool = False) -> Any:
    return runtime.create(container or {}, ids, directories=[folder], check_device_nodes=check)


def test_edits_of_the_spec_are_applied_once_and_those_of_each_device_after(tmp_path: Path) -> None:
    devices = [device(name, hooks=[{"hookName": "poststop", "path": f"/{name}"}]) for name in ("a", "b")]
    spec(tmp_path, "x.json", *devices, hooks=[{"hookName": "poststop", "path": "/all"}])
    made = create(tmp_path, "example.com/x=a", "example.com/x=b", "example.com/x=a")
    assert [hook["path"] for hook in made["hooks"]["poststop"]] == ["/all", "/a", "/b"]


def test_a_later_environment_variable_replaces_an_earlier_one(tmp_path: Path) -> None:
    spec(tmp_path, "x.json", device("a", env=["MODE=b"]))
    container = {"env": [{"name": "MODE", "value": "a"}, {"name": "KEPT", "value": "1"}]}
    made = create(tmp_path, "example.com/x=a", container=container)
    assert made["process"]["env"] == ["KEPT=1", "MODE=b"]


def test_a_device_node_gets_the_numbers_of_the_host(tmp_path: Path) -> None:
    spec(tmp_path, "x.json", device("a", deviceNodes=[{"path": "/dev/x", "hostPath": "/dev/null"}]))
    made = create(tmp_path, "example.com/x=a", check=True)
    (node,) = made["linux"]["devices"]
    assert (node["path"], node["type"], node["major"], node["minor"]) == ("/dev/x", "c", 1, 3)
    (rule,) = made["linux"]["resources"]["devices"]
    assert (rule["type"], rule["major"], rule["minor"], rule["access"]) == ("c", 1, 3, "rwm")


def test_a_device_node_missing_on_the_host_is_refused_only_on_request(tmp_path: Path) -> None:
    spec(tmp_path, "x.json", device("a", deviceNodes=[{"path": str(tmp_path / "none")}]))
    assert create(tmp_path, "example.com/x=a")["linux"]["devices"][0]["type"] == ""
    with pytest.raises(errors.RuntimeFailure, match="failed to stat"):
        create(tmp_path, "example.com/x=a", check=True)


def test_a_device_that_two_files_define_is_nobodys(tmp_path: Path) -> None:
    spec(tmp_path, "x.json", device("a"))
    spec(tmp_path, "y.json", device("a"))
    with pytest.raises(errors.RuntimeFailure, match=r"unresolvable CDI devices example\.com/x=a"):
        create(tmp_path, "example.com/x=a")


def test_a_broken_file_hides_only_its_own_devices(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("{")
    (tmp_path / "spec.x.tmp").write_text("{")
    spec(tmp_path, "x.json", device("a", env=["A=1"]))
    assert create(tmp_path, "example.com/x=a")["process"]["env"] == ["A=1"]
