"""Opaque parameters: what may stand in them, who may set it, and which hold for a device."""

import fnmatch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import bindings, claims, configurations, parameters

CLASS, CLAIM = parameters.Source.CLASS, parameters.Source.CLAIM
HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
EVERYTHING = {
    "environment": {"NCCL_DEBUG": "INFO"},
    "claimVariables": ["FPGA_*", "NCCL_DEBUG"],
    "deviceFiles": {"readOnly": True, "user": 1000, "group": 0, "mode": "0440"},
    "network": {"interfacePrefix": "data"},
    "memory": {"mode": "system-ram"},
    "attachTimeoutSeconds": 60,
}
DISK = bindings.Key(pool="fab/enc", device="disk-1")


def decode_parameters(source=CLASS, **reported):
    return parameters.decode(HEAD | reported, source)


def problems(document, source=CLASS, path=""):
    with pytest.raises(parameters.Invalid) as caught:
        parameters.decode(document, source, path=path)
    return caught.value.problems


def allocation(*config, results=(("req", "disk-1"),), driver="drawbar.dev"):
    entries = [
        {
            "source": source,
            "requests": list(requests),
            "opaque": {"driver": driver, "parameters": HEAD | reported},
        }
        for source, requests, reported in config
    ]
    allocated = [
        {"request": request, "driver": "drawbar.dev", "pool": "fab/enc", "device": device}
        for request, device in results
    ]
    return msgspec.convert({"devices": {"results": allocated, "config": entries}}, claims.Allocation)


def resolve_configurations(*config, **more):
    return configurations.by_device(allocation(*config, **more), "drawbar.dev")


def catch_refusal(*config, **more):
    with pytest.raises(parameters.Invalid) as caught:
        resolve_configurations(*config, **more)
    return str(caught.value)


def test_a_class_may_say_everything():
    reported = decode_parameters(**EVERYTHING)
    assert reported.environment == {"NCCL_DEBUG": "INFO"}
    assert reported.device_files == parameters.DeviceFiles(read_only=True, user=1000, group=0, mode="0440")
    assert reported.network.interface_prefix == "data"
    assert reported.memory.mode == parameters.SYSTEM_RAM
    assert reported.attach_timeout_seconds == 60


def test_recorded_parameters_are_read_despite_unknown_fields():
    reported = decode_parameters(**EVERYTHING)
    written = parameters.document(reported)
    assert parameters.from_record(msgspec.json.decode(msgspec.json.encode(written))) == reported
    assert parameters.from_record(written | {"colour": "red"}) == reported
    assert parameters.from_record({"attachTimeoutSeconds": "soon"}) == parameters.NOTHING
    assert parameters.document(parameters.NOTHING) == {}


WRONG = (
    (
        5,
        "the document is 5, not an object: write apiVersion: drawbar.dev/v1alpha1 and kind: DeviceParameters",
    ),
    (None, "the document is None, not an object"),
    (
        {"kind": "DeviceParameters"},
        "apiVersion is missing: this version of Drawbar takes drawbar.dev/v1alpha1",
    ),
    (HEAD | {"apiVersion": "drawbar.dev/v2"}, "apiVersion is 'drawbar.dev/v2': this version"),
    (HEAD | {"kind": "GpuConfig"}, "kind is 'GpuConfig': this version of Drawbar takes DeviceParameters"),
    (HEAD | {"enviroment": {}}, "enviroment is not a field of DeviceParameters: did you mean environment?"),
    (HEAD | {"xyz": 1}, "xyz is not a field of DeviceParameters: known are environment, claimVariables"),
    (HEAD | {"a b": 1}, "['a b'] is not a field"),
    (
        HEAD | {"deviceFiles": {"readonly": True}},
        "deviceFiles.readonly is not a field of DeviceParameters: did",
    ),
    (HEAD | {"deviceFiles": True}, "deviceFiles is True, not an object: give it some of readOnly, user"),
    (HEAD | {"deviceFiles": {"readOnly": "yes"}}, "deviceFiles.readOnly is 'yes': write true or false"),
    (HEAD | {"deviceFiles": {"readOnly": None}}, "deviceFiles.readOnly is None: write true or false"),
    (HEAD | {"deviceFiles": {"user": True}}, "deviceFiles.user is True: write a whole number from 0 to"),
    (HEAD | {"deviceFiles": {"group": 2**32 - 1}}, "deviceFiles.group is 4294967295: write a whole number"),
    (HEAD | {"deviceFiles": {"mode": 660}}, "deviceFiles.mode is 660: write permission bits in octal as a s"),
    (HEAD | {"deviceFiles": {"mode": "4755"}}, "deviceFiles.mode is '4755': write permission bits"),
    (HEAD | {"network": {"interfacePrefix": "Data"}}, "network.interfacePrefix is 'Data': write at most 12"),
    (HEAD | {"network": {"interfacePrefix": "eth"}}, "network.interfacePrefix is eth, and eth0 is the pod's"),
    (HEAD | {"memory": {"mode": "ram"}}, "memory.mode is 'ram': write devdax or system-ram"),
    (HEAD | {"memory": {"interleave": "yes"}}, "memory.interleave is 'yes': write true or false"),
    (
        HEAD | {"memory": {"granularity": 300}},
        "memory.granularity is 300: write a number of bytes, 256, 512, 1024, 2048, 4096, 8192 or 16384",
    ),
    (HEAD | {"memory": {"granularity": True}}, "memory.granularity is True: write a number of bytes, 256"),
    (
        HEAD | {"memory": {"interleaved": True}},
        "memory.interleaved is not a field of DeviceParameters: did you mean interleave?",
    ),
    (HEAD | {"memory": {"mode": ["devdax"]}}, "memory.mode is ['devdax']: write devdax or system-ram"),
    (HEAD | {"attachTimeoutSeconds": 0}, "attachTimeoutSeconds is 0: write a whole number from 1 to 86400"),
    (HEAD | {"attachTimeoutSeconds": 1.5}, "attachTimeoutSeconds is 1.5: write a whole number"),
    (
        HEAD | {"environment": ["A=b"]},
        "environment is a list, not an object: write each variable as NAME: value",
    ),
    (HEAD | {"environment": {"1ST": "x"}}, "environment['1ST'] is not the name of a variable"),
    (HEAD | {"environment": {"DRAWBAR_X": "x"}}, "environment.DRAWBAR_X is Drawbar's own: choose a name"),
    (HEAD | {"environment": {"A": 1}}, "environment.A is a number, no string: put it in quotation marks"),
    (HEAD | {"environment": {"A": "x\0"}}, "environment.A cannot be a variable's value"),
    (HEAD | {"environment": {"A": "x" * 4097}}, "environment.A cannot be a variable's value: 4096 bytes"),
    (
        HEAD | {"environment": {f"A{n}": "" for n in range(65)}},
        "environment has 65 variables: 64 are the most",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": {"count": 2}}},
        "virtualFunctions.groups is {'count': 2}, no list of objects: give each some of count, driver",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 1}, {"vlan": 1}]}},
        "virtualFunctions.groups[1].count is missing: write how many",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 200}, {"count": 57}]}},
        "virtualFunctions.groups are 257 virtual functions: 256 are the most",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 1}] * 9}},
        "virtualFunctions.groups has 9 entries: 8 are the most",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 1, "vlan": 4095}]}},
        "virtualFunctions.groups[0].vlan is 4095: write a whole number from 1 to 4094",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 1, "driver": "../vfio"}]}},
        "virtualFunctions.groups[0].driver is '../vfio': write the name of a kernel driver",
    ),
    (
        HEAD | {"virtualFunctions": {"groups": [{"count": 1, "vlna": 4}]}},
        "virtualFunctions.groups[0].vlna is not a field of DeviceParameters: did you mean vlan?",
    ),
    (HEAD | {"claimVariables": "A"}, "claimVariables is 'A', no list"),
    (HEAD | {"claimVariables": ["A", "*B"]}, "claimVariables[1] is '*B': write the name of a variable"),
)


@pytest.mark.parametrize(("document", "words"), WRONG, ids=[words for _, words in WRONG])
def test_parameters_without_effect_are_refused_with_field_and_remedy(document, words):
    (problem,) = problems(document)
    assert problem.startswith(words)


def test_all_mistakes_are_listed_at_once_and_a_long_list_is_cut():
    document = HEAD | {"deviceFiles": {"mode": 1, "user": -1}, "environment": {"A": 1, "B": 2, "C": None}}
    assert len(problems(document)) == 5
    with pytest.raises(parameters.Invalid, match=r"; and 1 more$"):
        parameters.decode(document, CLASS)


def test_the_field_path_begins_at_the_document():
    path = "spec.config[0].opaque.parameters"
    assert problems(HEAD | {"network": {"x": 1}}, path=path)[0].startswith(f"{path}.network.x is not a field")
    assert problems([], path=path)[0].startswith(f"{path} is [], not an object")


def test_the_value_of_a_variable_stands_in_no_message():
    (problem,) = problems(HEAD | {"environment": {"A": "hunter2\0"}})
    assert "hunter2" not in problem
    (problem,) = problems(HEAD | {"environment": {"A": ["hunter2"]}})
    assert "hunter2" not in problem


@pytest.mark.parametrize("field", ["attachTimeoutSeconds", "claimVariables"])
def test_a_claim_cannot_set_fields_reserved_for_administrators(field):
    (problem,) = problems(HEAD | {field: EVERYTHING[field]}, CLAIM)
    assert problem == (
        f"{field} is reserved for administrators: only the parameters of a DeviceClass may have it"
    )


def test_the_claim_adds_to_the_parameters_of_its_class():
    effective = resolve_configurations(
        ("FromClaim", (), {"deviceFiles": {"user": 7}, "network": {"interfacePrefix": "b"}}),
        ("FromClass", ("req",), {"deviceFiles": {"readOnly": True}, "attachTimeoutSeconds": 9}),
    )[DISK]
    assert effective.device_files == parameters.DeviceFiles(read_only=True, user=7)
    assert (effective.network.interface_prefix, effective.attach_timeout_seconds) == ("b", 9)


def test_a_claim_changes_nothing_that_its_class_sets():
    fixed = ("FromClass", ("req",), {"deviceFiles": {"readOnly": True, "user": 5}})
    assert resolve_configurations(fixed, ("FromClaim", (), {"deviceFiles": {"readOnly": True}}))
    reported = catch_refusal(fixed, ("FromClaim", (), {"deviceFiles": {"readOnly": False}}))
    assert reported == (
        "opaque parameters of the claim: deviceFiles.readOnly is set by its DeviceClass, to True, and a claim cannot "
        "change it: leave it out"
    )


@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
def test_a_device_with_its_vendors_files_is_never_only_read(source):
    of_class = ("FromClass", ("req",), {"vendorKind": "nvidia.com/gpu"})
    text = catch_refusal(of_class, (source, ("req",), {"deviceFiles": {"readOnly": True}}))
    assert text == (
        "opaque parameters: deviceFiles.readOnly has no effect with vendorKind, whose files let a container write: leave one "
        "of them out"
    )
    assert resolve_configurations(of_class, (source, ("req",), {"deviceFiles": {"readOnly": False}}))


@pytest.mark.parametrize("by_class", [None, "devdax", "system-ram"])
@pytest.mark.parametrize("wanted", [{"mode": "system-ram"}, {"mode": "system-ram", "interleave": True}])
def test_a_claim_alone_makes_no_memory_of_the_node(by_class, wanted):
    of_class = [("FromClass", ("req",), {"memory": {"mode": by_class}})] if by_class else []
    text = catch_refusal(*of_class, ("FromClaim", (), {"memory": wanted}))
    assert text == (
        "opaque parameters of the claim: memory.mode is system-ram, which is reserved for administrators: leave it out, and "
        "use a DeviceClass whose parameters have it"
    )


def test_a_class_has_memory_of_the_node_made_for_its_claims():
    of_class = ("FromClass", ("req",), {"memory": {"mode": "system-ram"}})
    assert resolve_configurations(of_class)[DISK].memory.mode == parameters.SYSTEM_RAM
    assert resolve_configurations(of_class, ("FromClaim", (), {"memory": {"interleave": True}}))[
        DISK
    ].memory == (parameters.Memory(mode=parameters.SYSTEM_RAM, interleave=True))
    text = catch_refusal(of_class, ("FromClaim", (), {"memory": {"mode": "devdax"}}))
    assert "memory.mode is set by its DeviceClass, to 'system-ram', and a claim cannot change it" in text


def test_a_claim_may_say_the_default():
    assert (
        resolve_configurations(("FromClaim", (), {"memory": {"mode": "devdax"}}))[DISK].memory.mode
        == parameters.DEVDAX
    )


def test_a_granularity_is_that_of_an_interleaved_region():
    alone = ("FromClaim", (), {"memory": {"granularity": 512}})
    assert "give memory.interleave: true, too" in catch_refusal(alone)
    memory = resolve_configurations(alone, ("FromClass", ("req",), {"memory": {"interleave": True}}))[
        DISK
    ].memory
    assert (memory.interleave, memory.granularity) == (True, 512)
    text = catch_refusal(alone, ("FromClass", ("req",), {"memory": {"interleave": False}}))
    assert "give memory.interleave: true, too" in text


def test_a_claim_sets_the_variables_that_its_class_lets_it_set_and_no_others():
    lets = ("FromClass", ("req",), {"claimVariables": ["FPGA_*", "A"], "environment": {"A": "0", "B": "1"}})
    effective = resolve_configurations(
        lets, ("FromClaim", (), {"environment": {"FPGA_KERNEL": "fft", "A": "2"}})
    )[DISK]
    assert effective.environment == {"A": "2", "B": "1", "FPGA_KERNEL": "fft"}
    assert "environment.B is not among the claimVariables of its DeviceClass: set it in" in catch_refusal(
        lets, ("FromClaim", (), {"environment": {"B": "2"}})
    )
    assert "environment.A is not among the claimVariables" in catch_refusal(
        ("FromClaim", (), {"environment": {"A": "2"}})
    )


def test_parameters_without_a_source_count_as_the_claims():
    assert "is reserved for administrators" in catch_refusal(("", (), {"attachTimeoutSeconds": 9}))


def test_an_entry_with_requests_is_for_their_devices_alone():
    results = (("gpu/big", "gpu-1"), ("gpu/small", "gpu-2"), ("disk", "disk-1"), ("disk", "disk-2"))

    def numbers(*requests):
        by_device = resolve_configurations(
            ("FromClaim", requests, {"deviceFiles": {"user": 7}}), results=results
        )
        return sorted(key.device for key in by_device)

    assert numbers() == ["disk-1", "disk-2", "gpu-1", "gpu-2"]
    assert numbers("gpu") == ["gpu-1", "gpu-2"]
    assert numbers("gpu/small") == ["gpu-2"]
    assert numbers("disk", "gpu/big") == ["disk-1", "disk-2", "gpu-1"]
    assert numbers("big") == []


def test_of_two_entries_of_one_source_the_later_wins():
    effective = resolve_configurations(
        ("FromClass", (), {"deviceFiles": {"user": 1, "group": 1}}),
        ("FromClass", (), {"deviceFiles": {"user": 2}}),
    )[DISK]
    assert (effective.device_files.user, effective.device_files.group) == (2, 1)


def test_parameters_of_another_driver_are_ignored():
    other = allocation(("FromClaim", (), {"anything": 1}), driver="gpu.example.com")
    assert configurations.by_device(other, "drawbar.dev") == {}
    assert not configurations.has_parameters(other, "drawbar.dev")
    assert configurations.has_parameters(allocation(("FromClaim", (), {})), "drawbar.dev")


def test_a_wrong_parameter_of_a_class_is_reported_with_the_request():
    reported = catch_refusal(("FromClass", ("gpu",), {"attachTimeoutSeconds": 0}))
    assert reported.startswith(
        "opaque parameters of the DeviceClass of request gpu: attachTimeoutSeconds is 0"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*EVERYTHING, "readOnly", "user", "mode", "A", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([CLASS, CLAIM]), st.booleans())
def test_any_document_is_decoded_or_refused_with_a_sentence(document, source, headed):
    if headed and isinstance(document, dict):
        document = document | HEAD
    try:
        reported = parameters.decode(document, source)
    except parameters.Invalid as invalid:
        words = invalid.problems
    else:
        words = ("decoded",)
        assert parameters.from_record(parameters.document(reported)) == reported
        assert source is CLASS or not (reported.claim_variables or reported.attach_timeout_seconds)
    assert words
    assert all(problem and "\n" not in problem for problem in words)


FILES = st.builds(
    parameters.DeviceFiles,
    read_only=st.none() | st.booleans(),
    user=st.none() | st.integers(0, 2),
    mode=st.none() | st.sampled_from(["0600", "0660"]),
)
VARIABLES = st.dictionaries(st.sampled_from(["A", "AB", "B"]), st.sampled_from(["0", "1"]))
BY_CLASS = st.builds(
    parameters.DeviceParameters,
    environment=VARIABLES,
    claim_variables=st.lists(st.sampled_from(["A", "A*", "B"])).map(tuple),
    device_files=FILES,
)
BY_CLAIM = st.builds(parameters.DeviceParameters, environment=VARIABLES, device_files=FILES)


@given(st.lists(BY_CLASS, max_size=3), st.lists(BY_CLAIM, max_size=3), st.randoms())
def test_a_claim_never_has_more_than_its_class_gives(by_class, by_claim, order):
    layers = [
        configurations.Layer(source=CLASS, requests=(), device_parameters=reported) for reported in by_class
    ]
    alone = configurations.merge(layers)
    patterns = [pattern for reported in by_class for pattern in reported.claim_variables]
    claimed = [
        configurations.Layer(source=CLAIM, requests=(), device_parameters=reported) for reported in by_claim
    ]
    try:
        both = configurations.merge([*claimed, *layers] if order.random() < 0.5 else [*layers, *claimed])
    except parameters.Invalid:
        return
    fixed = msgspec.to_builtins(alone.device_files)
    assert {name: msgspec.to_builtins(both.device_files).get(name) for name in fixed} == fixed
    changed = {name for name, value in both.environment.items() if alone.environment.get(name) != value}
    assert all(any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns) for name in changed)
    assert both.claim_variables == ()


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, ["x" * 10**6] * 10**4, {"a": {"b": [[[[[]]]]]}}, 10**30, {str(n): n for n in range(10**5)}],
)
def test_a_value_of_any_size_stands_in_a_message_as_a_few_characters(value):
    (problem,) = problems(HEAD | {"network": {"interfacePrefix": value}})
    assert len(problem) < 200


def test_of_a_thousand_problems_a_few_are_looked_for():
    document = HEAD | {f"x{number}": 1 for number in range(1000)}
    assert len(problems(document)) == parameters.PROBLEMS_MAX
    with pytest.raises(parameters.Invalid, match=r"; and many more$"):
        parameters.decode(document, CLASS)
    variables = HEAD | {"environment": {f"1{number}": 1 for number in range(1000)}}
    assert list(problems(variables)) == ["environment has 1000 variables: 64 are the most"]
