"""The CDI model judged by the rules of the specification's own JSON schema, written again here.

`faults` shares nothing with the product: types and required fields are those of schema/schema.json and
schema/defs.json, values those that SPEC.md asks for in words.
"""

import copy
import json
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawbar.cdi import errors, files, spec

UINT32, INT64 = 2**32 - 1, 2**63 - 1
NAME = r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9_.:-]*[A-Za-z0-9]"
SEGMENT = r"[A-Za-z]|[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]"


def is_text(value):
    return isinstance(value, str)


def make_integer_check(low, high):
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_flag(value):
    return isinstance(value, bool)


def make_pattern_check(pattern):
    return lambda value: is_text(value) and re.fullmatch(pattern, value) is not None


def make_list_check(fits):
    return lambda value: isinstance(value, list) and all(map(fits, value))


def make_object_check(required, optional):
    """Return a check that accepts an object with these fields and no others."""

    def fits(value):
        if not isinstance(value, dict) or not required.keys() <= value.keys():
            return False
        fields = required | optional
        return all(key in fields and fields[key](held) for key, held in value.items())

    return fits


PATH = make_pattern_check(r"/[^\0]*")
ENV = make_list_check(make_pattern_check(r"[^=\0]+=[^\0]*"))
NODE = make_object_check(
    {"path": PATH},
    {
        "hostPath": make_pattern_check(r"|/[^\0]*"),
        "permissions": make_pattern_check(r"[rwm]*"),
        "type": lambda value: value in ("", "b", "c", "u", "p"),
        "major": make_integer_check(0, INT64),
        "minor": make_integer_check(0, INT64),
        "fileMode": make_integer_check(0, UINT32),
        "uid": make_integer_check(0, UINT32),
        "gid": make_integer_check(0, UINT32),
    },
)
MOUNT = make_object_check(
    {"hostPath": make_pattern_check(r"[^\0]+"), "containerPath": PATH},
    {"options": make_list_check(is_text), "type": is_text},
)
HOOK = make_object_check(
    {
        "hookName": make_pattern_check(
            "prestart|createRuntime|createContainer|startContainer|poststart|poststop"
        ),
        "path": PATH,
    },
    {"args": make_list_check(is_text), "env": ENV, "timeout": make_integer_check(1, UINT32)},
)
RDT = make_object_check(
    {},
    {
        "closID": is_text,
        "l3CacheSchema": is_text,
        "memBwSchema": is_text,
        "schemata": make_list_check(is_text),
        "enableMonitoring": is_flag,
        "enableCMT": is_flag,
        "enableMBM": is_flag,
    },
)
NET = make_object_check({"hostInterfaceName": make_pattern_check(".+"), "name": make_pattern_check(".+")}, {})
EDITS = make_object_check(
    {},
    {
        "env": ENV,
        "deviceNodes": make_list_check(NODE),
        "mounts": make_list_check(MOUNT),
        "hooks": make_list_check(HOOK),
        "netDevices": make_list_check(NET),
        "additionalGids": make_list_check(make_integer_check(0, UINT32)),
        "intelRdt": RDT,
    },
)


def is_text_map(value):
    return isinstance(value, dict) and all(is_text(key) and is_text(held) for key, held in value.items())


DEVICE = make_object_check(
    {"name": make_pattern_check(NAME), "containerEdits": lambda value: bool(value) and EDITS(value)},
    {"annotations": is_text_map},
)
FILE = make_object_check(
    {
        "cdiVersion": lambda value: value in spec.KNOWN_VERSIONS,
        "kind": make_pattern_check(rf"({SEGMENT})/({SEGMENT})"),
        "devices": lambda value: bool(value) and make_list_check(DEVICE)(value),
    },
    {"annotations": is_text_map, "containerEdits": EDITS},
)


def is_valid(document):
    return FILE(document) and len({device["name"] for device in document["devices"]}) == len(
        document["devices"]
    )


words = st.text("abcXYZ019_-.", min_size=1, max_size=8)
paths = words.map(lambda word: f"/dev/{word}")
variables = st.tuples(st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True), words).map("=".join)
interfaces = st.from_regex(r"[a-z]{1,4}[0-9]{0,3}", fullmatch=True)
ids = st.none() | st.integers(0, UINT32)
labels = st.dictionaries(st.from_regex(r"(a\.b/)?[a-z]{1,4}", fullmatch=True), words, max_size=2)


def up_to(strategy, unique=None):
    return st.lists(strategy, max_size=3, unique_by=unique).map(tuple)


@st.composite
def nodes(draw):
    numbers = draw(st.none() | st.tuples(st.integers(0, INT64), st.integers(0, INT64)))
    major, minor = numbers or (None, None)
    return spec.DeviceNode(
        path=draw(paths),
        host_path=draw(st.just("") | paths),
        type=draw(st.sampled_from(["", "b", "c", "u", "p"])),
        major=major,
        minor=minor,
        file_mode=draw(st.none() | st.integers(0, 0o7777)),
        permissions=draw(st.sampled_from(["", "r", "rw", "rwm", "mw"])),
        uid=draw(ids),
        gid=draw(ids),
    )


mounts = st.builds(
    spec.Mount,
    host_path=paths,
    container_path=paths,
    options=up_to(words),
    type=st.sampled_from(["", "none", "tmpfs"]),
)
hooks = st.builds(
    spec.Hook,
    name=st.sampled_from(["prestart", "createRuntime", "poststop"]),
    path=paths,
    args=up_to(words),
    env=up_to(variables),
    timeout_seconds=st.none() | st.integers(1, UINT32),
)
rdts = st.builds(
    spec.IntelRdt,
    clos_id=st.sampled_from(["", "gold", "/"]),
    l3_cache_schema=st.just("") | words,
    mem_bw_schema=st.just("") | words,
    enable_cmt=st.booleans(),
    enable_mbm=st.booleans(),
) | st.builds(spec.IntelRdt, schemata=up_to(words), enable_monitoring=st.booleans())
edits = st.builds(
    spec.ContainerEdits,
    env=up_to(variables),
    device_nodes=up_to(nodes(), unique=lambda node: node.path),
    mounts=up_to(mounts),
    hooks=up_to(hooks),
    net_devices=st.dictionaries(interfaces, interfaces, max_size=2).map(
        lambda names: tuple(
            spec.NetDevice(host_name=host, name=f"{name}-{number}")
            for number, (host, name) in enumerate(names.items())
        )
    ),
    additional_gids=up_to(st.integers(0, UINT32)),
    intel_rdt=st.none() | rdts,
)
devices = st.builds(
    spec.Device,
    name=st.from_regex(r"[a-z0-9]([a-z.:_-]{0,5}[a-z0-9])?", fullmatch=True),
    edits=edits.filter(lambda device_edits: device_edits != spec.EMPTY),
    annotations=labels,
)
specs = st.builds(
    spec.Spec,
    kind=st.from_regex(r"[a-z]([a-z.-]{0,5}[a-z0-9])?/[a-z]([a-z.-]{0,5}[a-z0-9])?", fullmatch=True),
    devices=st.lists(devices, min_size=1, max_size=3, unique_by=lambda device: device.name).map(tuple),
    edits=edits,
    annotations=labels,
)


def expressible(content):
    """Return whether one version can hold the content: 1.1.0 added some fields and dropped others."""
    held = [
        container_edits.intel_rdt
        for container_edits in content.all_edits()
        if container_edits.intel_rdt is not None
    ]
    new = any(rdt.schemata or rdt.enable_monitoring for rdt in held)
    new = new or any(container_edits.net_devices for container_edits in content.all_edits())
    return not (new and any(rdt.enable_cmt or rdt.enable_mbm for rdt in held))


@settings(max_examples=80, deadline=None)
@given(specs.filter(expressible))
def test_written_specifications_match_the_schema_and_are_read_unchanged(content):
    document = json.loads(json.dumps(spec.encode(content)))
    assert is_valid(document)
    assert spec.decode(document) == content


dropped = st.sampled_from(
    [{"enable_cmt": True}, {"enable_mbm": True}, {"enable_cmt": True, "enable_mbm": True}]
).map(lambda flags: {"intel_rdt": spec.IntelRdt(**flags)})
interface = {"net_devices": (spec.NetDevice(host_name="e0", name="e0-0"),)}
brought = st.just(interface) | st.sampled_from([{"schemata": ("L3:0=f",)}, {"enable_monitoring": True}]).map(
    lambda fields: {"intel_rdt": spec.IntelRdt(**fields)}
)


@st.composite
def inexpressible(draw):
    """Draw content with a field that 1.1.0 dropped and one that it added, in one place or in two."""
    content, old, new = draw(specs), draw(dropped), draw(brought)
    device, *rest = content.devices
    for_all, for_one = draw(
        st.sampled_from([(old, new), (new, old), (old | interface, {}), ({}, old | interface)])
    )
    device = msgspec.structs.replace(device, edits=msgspec.structs.replace(device.edits, **for_one))
    return msgspec.structs.replace(
        content, edits=msgspec.structs.replace(content.edits, **for_all), devices=(device, *rest)
    )


@settings(max_examples=50, deadline=None)
@given(inexpressible())
def test_fields_of_incompatible_versions_are_refused_with_a_remedy(content):
    assert not expressible(content)
    with pytest.raises(errors.InvalidSpec, match="enableMonitoring"):
        spec.encode(content)


CONTENT = spec.Spec(
    kind="a.b/c",
    annotations={"a.b/c": "d"},
    edits=spec.ContainerEdits(env=("A=1",)),
    devices=(
        spec.Device(
            name="n",
            annotations={"x": "y"},
            edits=spec.ContainerEdits(
                env=("A=1",),
                device_nodes=(
                    spec.DeviceNode(path="/dev/a", host_path="/dev/b", type="c", major=1, minor=2, uid=3),
                ),
                mounts=(spec.Mount(host_path="/a", container_path="/b", options=("ro",)),),
                hooks=(spec.Hook(name="poststop", path="/bin/x", args=("x",), timeout_seconds=3),),
                net_devices=(spec.NetDevice(host_name="eth0", name="eth1"),),
                additional_gids=(5,),
                intel_rdt=spec.IntelRdt(clos_id="gold", schemata=("L3:0=f",)),
            ),
        ),
    ),
)
WHOLE = json.loads(json.dumps(spec.encode(CONTENT)))


def list_paths(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key, held in value.items() if isinstance(value, dict) else enumerate(value):
            yield from list_paths(held, (*path, key))


def change_document(path, value):
    """Return the whole document with something else at one place; without it where the value is None."""
    document = copy.deepcopy(WHOLE)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return document


CHANGES = [
    pytest.param(path, value, id=f"{'.'.join(map(str, path))}={value!r}"[:60])
    for path in list_paths(WHOLE)
    if path
    for value in (None, "", "x", "/x", -1, 0, True, [], {}, [1], ["x"], {"x": 1}, {"x": "y"})
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_the_model_takes_nothing_that_the_schema_refuses(path, value):
    document = change_document(path, value)
    if is_valid(document):
        return
    with pytest.raises(errors.InvalidSpec):
        spec.decode(document)


def test_the_schema_written_here_takes_the_whole_document():
    assert is_valid(WHOLE)
    assert spec.decode(WHOLE).qualify(spec.decode(WHOLE).devices[0]) == "a.b/c=n"


@settings(max_examples=50, deadline=None)
@given(specs.filter(expressible))
def test_the_lowest_version_is_enough_and_none_below_it_is(content):
    document = spec.encode(content)
    for version in spec.KNOWN_VERSIONS[: spec.KNOWN_VERSIONS.index(document["cdiVersion"])]:
        with pytest.raises(errors.InvalidSpec, match="came with"):
            spec.decode(document | {"cdiVersion": version})


def test_a_file_of_ours_is_read_back(tmp_path):
    content = spec.decode(WHOLE)
    file = files.path(tmp_path, "a.b", "uid")
    files.write(file, content)
    assert files.read(file) == content
