"""Which CDI files the runtime of the kubelet double takes, as containerd does."""

import json

import pytest

from drawbar.mocks.kubelet import cdi, errors, runtime

NODE = {"path": "/dev/x"}


def spec(**changes):
    base = {
        "cdiVersion": "0.6.0",
        "kind": "example.com/x",
        "devices": [{"name": "a", "containerEdits": {"env": ["A=1"]}}],
    }
    return base | changes


def device(name="a", **edits):
    return {"devices": [{"name": name, "containerEdits": edits}]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{", "", id="no-json"),
        pytest.param("[]", "Expected `object`", id="no-object"),
        pytest.param(spec(cdiVersion="0.2.0"), "invalid version '0.2.0'", id="version-too-old"),
        pytest.param(spec(cdiVersion="9.9.9"), "invalid version", id="version-unknown"),
        pytest.param(spec(cdiVersion=None), "cdiVersion", id="version-missing"),
        pytest.param(spec(kind="example.com"), "not vendor/class", id="kind-without-class"),
        pytest.param(spec(kind="1example.com/x"), "not vendor/class", id="kind-begins-with-digit"),
        pytest.param(spec(kind="example.com/x-"), "not vendor/class", id="kind-ends-with-dash"),
        pytest.param(spec(**device("-a", env=["A=1"])), "invalid device name '-a'", id="name"),
        pytest.param(spec(devices=spec()["devices"] * 2), "multiple device 'a'", id="name-twice"),
        pytest.param(spec(**device()), "empty device edits", id="no-edits"),
        pytest.param(spec(**device(env=["A"])), "invalid environment variable 'A'", id="env"),
        pytest.param(spec(**device(deviceNodes=[{"path": ""}])), "empty", id="node-path"),
        pytest.param(spec(**device(deviceNodes=[NODE | {"type": "x"}])), "invalid type 'x'", id="node-type"),
        pytest.param(
            spec(**device(deviceNodes=[NODE | {"permissions": "rx"}])), "permissions 'rx'", id="permissions"
        ),
        pytest.param(
            spec(**device(hooks=[{"hookName": "later", "path": "/x"}])), "invalid hook 'later'", id="hook"
        ),
        pytest.param(
            spec(**device(mounts=[{"hostPath": "", "containerPath": "/a"}])), "invalid mount", id="mount"
        ),
        pytest.param(spec(surprise=1), "unknown field `surprise`", id="unknown-field"),
        pytest.param(spec(**device(env=["A=1"], devices=[])), "unknown field `devices`", id="unknown-edit"),
    ],
)
def test_a_file_that_breaks_a_rule_is_ignored_with_its_reason(tmp_path, content, words):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "x.json").write_text(text)
    devices = cdi.devices([tmp_path])
    assert devices.by_id == {}
    assert words in devices.faults[tmp_path / "x.json"]
    with pytest.raises(
        errors.RuntimeFailure, match=r"unresolvable CDI devices example\.com/x=a; .* is ignored"
    ):
        runtime.create({}, ["example.com/x=a"], directories=[tmp_path], check_device_nodes=False)


@pytest.mark.parametrize(
    ("changes", "lowest"),
    [
        pytest.param({}, "0.3.0", id="basics"),
        pytest.param(
            device(mounts=[{"hostPath": "/a", "containerPath": "/a", "type": "bind"}]), "0.4.0", id="type"
        ),
        pytest.param(device(deviceNodes=[NODE | {"hostPath": "/dev/y"}]), "0.5.0", id="host-path"),
        pytest.param(device("0", env=["A=1"]), "0.5.0", id="name-begins-with-digit"),
        pytest.param({"kind": "example.com/x.y"}, "0.6.0", id="dotted-class"),
        pytest.param({"annotations": {"a.b/c": "d"}}, "0.6.0", id="annotations"),
        pytest.param(device(additionalGids=[7]), "0.7.0", id="groups"),
        pytest.param(device(intelRdt={"closID": "x"}), "0.7.0", id="rdt"),
        pytest.param(device(netDevices=[{"hostInterfaceName": "e0", "name": "n0"}]), "1.1.0", id="net"),
    ],
)
def test_a_feature_needs_the_version_that_brought_it(tmp_path, changes, lowest):
    position = cdi.VERSIONS.index(lowest)
    file = tmp_path / "x.json"
    file.write_text(json.dumps(spec(cdiVersion=lowest) | changes))
    assert cdi.devices([tmp_path]).faults == {}
    if position:
        file.write_text(json.dumps(spec(cdiVersion=cdi.VERSIONS[position - 1]) | changes))
        assert f"at least v{lowest}" in cdi.devices([tmp_path]).faults[file]


def test_the_later_directory_wins(tmp_path):
    for name in ("etc", "run"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").write_text(json.dumps(spec(**device(env=[f"FROM={name}"]))))
    made = runtime.create(
        {},
        ["example.com/x=a"],
        directories=[tmp_path / "etc", tmp_path / "run", tmp_path / "none"],
        check_device_nodes=False,
    )
    assert made["process"]["env"] == ["FROM=run"]


def test_groups_network_devices_and_rdt_reach_the_runtime_spec(tmp_path):
    edits = {
        "additionalGids": [0, 7, 7],
        "netDevices": [{"hostInterfaceName": "e0", "name": "n0"}],
        "intelRdt": {"closID": "x"},
    }
    (tmp_path / "x.json").write_text(json.dumps(spec(cdiVersion="1.1.0") | device(**edits)))
    made = runtime.create({}, ["example.com/x=a"], directories=[tmp_path], check_device_nodes=False)
    assert made["process"]["user"] == {"additionalGids": [7]}
    assert made["linux"]["netDevices"] == {"e0": {"name": "n0"}}
    assert made["linux"]["intelRdt"] == {"closID": "x"}
