"""What the model refuses beyond the schema, by name, and the version that each field needs."""

import pytest

from drawbar.cdi import errors, spec


def spec_of_device(kind="drawbar.dev/gpu", name="n1", **edits):
    changes = spec.ContainerEdits(**edits)
    return spec.Spec(kind=kind, devices=(spec.Device(name=name, edits=changes),))


def node(**values):
    return spec_of_device(device_nodes=(spec.DeviceNode(**{"path": "/dev/a"} | values),))


def make_annotated_spec(**held):
    edits = spec.ContainerEdits(env=("A=1",))
    device = spec.Device(name="n1", edits=edits, annotations=held)
    return spec.Spec(kind="drawbar.dev/gpu", devices=(device,))


MOUNT = {"host_path": "/a", "container_path": "/b"}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        pytest.param(spec_of_device(kind="nvme", env=("A=1",)), "vendor/class", id="kind-without-vendor"),
        pytest.param(spec_of_device(name="-n", env=("A=1",)), "'-n'", id="name-starts-with-dash"),
        pytest.param(spec_of_device(env=("NOVALUE",)), "NAME=VALUE", id="environment-without-value"),
        pytest.param(node(path="dev/a"), "absolute", id="relative-path"),
        pytest.param(node(type="x"), "type", id="unknown-type"),
        pytest.param(node(permissions="x"), "permissions", id="unknown-permission"),
        pytest.param(spec.Spec(kind="drawbar.dev/nvme", devices=()), "no device", id="no-device"),
        pytest.param(
            spec.Spec(kind="drawbar.dev/nvme", devices=spec_of_device(env=("A=1",)).devices * 2),
            "twice",
            id="device-twice",
        ),
        pytest.param(spec_of_device(), "changes nothing", id="empty-edits"),
        pytest.param(
            spec.Spec(kind=f"{'v' * 254}/c", devices=spec_of_device(env=("A=1",)).devices),
            "too long",
            id="vendor",
        ),
        pytest.param(
            spec.Spec(kind=f"v/{'c' * 64}", devices=spec_of_device(env=("A=1",)).devices),
            "too long",
            id="class",
        ),
        pytest.param(spec_of_device(env=("A=\0",)), "NAME=VALUE", id="nul-in-environment"),
        pytest.param(node(path="/dev/\0"), "absolute", id="nul-in-path"),
        pytest.param(node(host_path="dev/a"), "absolute", id="relative-host-path"),
        pytest.param(node(major=1), "both or neither", id="one-number"),
        pytest.param(node(major=-1, minor=0), "major -1", id="wildcard-number"),
        pytest.param(node(file_mode=0o10000), "file mode", id="mode-with-type-bits"),
        pytest.param(node(uid=2**32), "uid", id="uid-too-large"),
        pytest.param(node(permissions="rr"), "permissions", id="permission-twice"),
        pytest.param(
            spec_of_device(
                device_nodes=(
                    spec.DeviceNode(path="/dev/a", type="c", major=1, minor=1),
                    spec.DeviceNode(path="/dev/a", type="b", major=1, minor=1),
                )
            ),
            "two different device nodes",
            id="two-nodes-at-one-path",
        ),
        pytest.param(
            spec_of_device(mounts=(spec.Mount(**MOUNT | {"host_path": "a"}),)), "host path", id="mount-of"
        ),
        pytest.param(
            spec_of_device(mounts=(spec.Mount(**MOUNT | {"container_path": "b"}),)), "mount point", id="at"
        ),
        pytest.param(
            spec_of_device(mounts=(spec.Mount(**MOUNT, options=("",)),)), "empty option", id="mount-option"
        ),
        pytest.param(
            spec_of_device(mounts=(spec.Mount(host_path="", container_path="/b", type="tmpfs"),)),
            "of what",
            id="tmpfs",
        ),
        pytest.param(
            spec_of_device(hooks=(spec.Hook(name="now", path="/x"),)), "'now' is not one of", id="hook-name"
        ),
        pytest.param(
            spec_of_device(hooks=(spec.Hook(name="poststop", path="x"),)), "absolute", id="hook-path"
        ),
        pytest.param(
            spec_of_device(hooks=(spec.Hook(name="poststop", path="/x", timeout_seconds=0),)),
            "timeout",
            id="hook-timeout",
        ),
        pytest.param(
            spec_of_device(hooks=(spec.Hook(name="poststop", path="/x", env=("x",)),)),
            "NAME=VALUE",
            id="hook-environment",
        ),
        pytest.param(
            spec_of_device(net_devices=(spec.NetDevice(host_name="a" * 16, name="b"),)),
            "network interface",
            id="long",
        ),
        pytest.param(
            spec_of_device(net_devices=(spec.NetDevice(host_name="a/b", name="b"),)),
            "network interface",
            id="slash",
        ),
        pytest.param(
            spec_of_device(
                net_devices=(
                    spec.NetDevice(host_name="a", name="net0"),
                    spec.NetDevice(host_name="b", name="net0"),
                )
            ),
            "'net0' is there twice",
            id="two-interfaces-of-one-name",
        ),
        pytest.param(spec_of_device(additional_gids=(-1,)), "group id", id="gid"),
        pytest.param(spec_of_device(intel_rdt=spec.IntelRdt(clos_id="..")), "closID", id="clos"),
        pytest.param(make_annotated_spec(**{"a/b/c": "d"}), "annotation", id="annotation-with-two-slashes"),
        pytest.param(make_annotated_spec(**{"-": "d"}), "annotation", id="annotation-name"),
        pytest.param(make_annotated_spec(a="d" * 262_144), "more than", id="annotations-too-large"),
    ],
)
def test_content_that_misleads_a_runtime_is_refused_by_name(content, word):
    with pytest.raises(errors.InvalidSpec, match=word):
        spec.encode(content)


@pytest.mark.parametrize(
    ("content", "version"),
    [
        pytest.param(spec_of_device(env=("A=1",)), "0.3.0", id="basics"),
        pytest.param(spec_of_device(name="0c", env=("A=1",)), "0.5.0", id="name-begins-with-digit"),
        pytest.param(spec_of_device(kind="drawbar.dev/a.b", env=("A=1",)), "0.6.0", id="dotted-class"),
        pytest.param(spec_of_device(mounts=(spec.Mount(**MOUNT),)), "0.3.0", id="mount"),
        pytest.param(spec_of_device(mounts=(spec.Mount(**MOUNT, type="none"),)), "0.4.0", id="mount-type"),
        pytest.param(node(host_path="/dev/b"), "0.5.0", id="host-path"),
        pytest.param(make_annotated_spec(a="b"), "0.6.0", id="device-annotation"),
        pytest.param(
            spec.Spec(kind="a/b", annotations={"a": "b"}, devices=spec_of_device(env=("A=1",)).devices),
            "0.6.0",
            id="file-annotation",
        ),
        pytest.param(spec_of_device(additional_gids=(1,)), "0.7.0", id="gids"),
        pytest.param(spec_of_device(intel_rdt=spec.IntelRdt(enable_cmt=True)), "0.7.0", id="rdt"),
        pytest.param(
            spec_of_device(intel_rdt=spec.IntelRdt(enable_monitoring=True)), "1.1.0", id="rdt-monitoring"
        ),
        pytest.param(
            spec_of_device(intel_rdt=spec.IntelRdt(schemata=("L3:0=f",))), "1.1.0", id="rdt-schemata"
        ),
        pytest.param(
            spec_of_device(net_devices=(spec.NetDevice(host_name="eth0", name="eth0"),)),
            "1.1.0",
            id="net-devices",
        ),
        pytest.param(
            spec.Spec(
                kind="a/b",
                devices=spec_of_device(env=("A=1",)).devices,
                edits=spec.ContainerEdits(device_nodes=(spec.DeviceNode(path="/a", host_path="/b"),)),
            ),
            "0.5.0",
            id="edits-of-the-whole-file",
        ),
    ],
)
def test_each_field_needs_the_version_that_brought_it(content, version):
    assert spec.encode(content)["cdiVersion"] == version


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param([], "not an object with a text 'cdiVersion'", id="list"),
        pytest.param(None, "not an object", id="null"),
        pytest.param({"cdiVersion": "0.5.0"}, "missing required field `kind`", id="no-kind"),
        pytest.param(
            {"cdiVersion": "0.5.0", "kind": "a/b", "devices": [{"name": 1}]},
            r"Expected `str`, got `int` - at `\$.devices\[0\].name`",
            id="name",
        ),
        pytest.param(
            {
                "cdiVersion": "0.5.0",
                "kind": "a/b",
                "devices": [{"name": "x", "containerEdits": {"env": ["A=1"], "envs": []}}],
            },
            r"unknown field `envs` - at `\$.devices\[0\].containerEdits`",
            id="unknown-field",
        ),
        pytest.param(
            {
                "cdiVersion": "9.9.9",
                "kind": "a/b",
                "devices": [{"name": "x", "containerEdits": {"env": ["A=1"]}}],
            },
            "unknown version '9.9.9'",
            id="version",
        ),
    ],
)
def test_an_invalid_specification_is_refused_with_the_faulty_field(document, words):
    with pytest.raises(errors.InvalidSpec, match=words):
        spec.decode(document)


def test_a_version_may_have_a_v_before_it_as_the_runtimes_allow():
    document = spec.encode(spec_of_device(env=("A=1",)))
    assert spec.decode(document | {"cdiVersion": "v0.3.0"}) == spec_of_device(env=("A=1",))
