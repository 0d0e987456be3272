"""What classic claims ask for: read from both versions of the API, from classes and from parameters."""

import msgspec
import pytest

from drawbar.driver import expressions
from drawbar.driver.api import (
    claims,
    classic,
    classic_v1alpha2,
    classic_v1alpha3,
    handles,
)
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.classic import claim_requests

DRIVER = "drawbar.dev"
V1ALPHA2, V1ALPHA3 = classic.Version.V1ALPHA2, classic.Version.V1ALPHA3
MAP = {"kind": "ConfigMap", "name": "p"}
OURS = {"metadata": {"name": "gpu"}, "driverName": DRIVER}


def old_claim(**spec):
    document = {"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": spec}
    return classic_v1alpha2.claim(msgspec.convert(document, classic_v1alpha2.ResourceClaim), DRIVER)


def new_claim(controller=DRIVER, **devices):
    spec = {"controller": controller, "devices": devices}
    document = {"metadata": {"namespace": "ns", "name": "c", "uid": "u"}, "spec": spec}
    return classic_v1alpha3.claim(msgspec.convert(document, classic_v1alpha3.ResourceClaim), DRIVER)


def sources(*classes, **data):
    by_key = {}
    for document in classes:
        if "spec" in document:
            class_ = classic_v1alpha3.device_class(
                msgspec.convert(document, classic_v1alpha3.DeviceClass), DRIVER
            )
            by_key[V1ALPHA3, class_.name] = class_
        else:
            class_ = classic_v1alpha2.resource_class(
                msgspec.convert(document, classic_v1alpha2.ResourceClass)
            )
            by_key[V1ALPHA2, class_.name] = class_
    return claim_requests.Sources(
        driver=DRIVER,
        classes=by_key,
        data={classic.Name(namespace="ns", name=name): content for name, content in data.items()},
        fault=expressions.fault,
    )


def read_own_requests(claim, sources_):
    assert claim_requests.is_ours(claim, sources_)
    return claim_requests.read_requests(claim, sources_)


# v1alpha2.


def test_a_class_without_parameters_stands_for_the_devices_that_its_name_begins_with():
    requested = read_own_requests(old_claim(resourceClassName="gpu"), sources(OURS))
    assert requested.requests == (matching.Request(name=handles.WHOLE_CLAIM, device_class="gpu"),)
    named = OURS | {"metadata": {"name": "anything"}}
    requested = read_own_requests(old_claim(resourceClassName="anything"), sources(named))
    assert requested.requests[0].device_class == matching.ANY


def test_a_claim_adds_to_the_request_of_its_class():
    device_class = OURS | {"parametersRef": MAP | {"namespace": "ns", "name": "class"}}
    claim = old_claim(resourceClassName="gpu", parametersRef=MAP, allocationMode="Immediate")
    sources_ = sources(
        device_class,
        **{
            "class": {"deviceClass": "gpu", "selector": "true", "shareable": "true"},
            "p": {
                "model": "M",
                "count": "2",
                "selector": "false",
                "optional": "true",
                "tolerations": "k=v:NoSchedule, *",
            },
        },
    )
    requested = read_own_requests(claim, sources_)
    assert claim.immediate
    assert requested.shareable
    assert requested.requests == (
        matching.Request(
            name=handles.WHOLE_CLAIM,
            count=2,
            device_class="gpu",
            model="M",
            selectors=("true", "false"),
            optional=True,
            tolerations=(
                matching.Toleration(key="k", value="v", effect="NoSchedule"),
                matching.Toleration(),
            ),
        ),
    )


def test_the_nodes_that_a_class_suits_are_kept():
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    requested = read_own_requests(
        old_claim(resourceClassName="gpu"), sources(OURS | {"suitableNodes": selector})
    )
    assert requested.suitable_nodes == (msgspec.convert(selector, claims.NodeSelector),)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"colour": "red"}, "not a parameter"),
        ({"deviceClass": "toaster"}, "deviceClass 'toaster' is unknown"),
        ({"count": "0"}, "from 1 to 32"),
        ({"count": "many"}, "from 1 to 32"),
        # More digits than Python reads.
        ({"count": "9" * 5000}, "from 1 to 32"),
        ({"optional": "perhaps"}, "neither true nor false"),
        ({"tolerations": "k:Sometimes"}, "an unknown effect"),
        ({"deviceClass": "nvme"}, "gives gpu alone"),
        ({"selector": "device."}, "cannot be read"),
    ],
)
def test_parameters_that_cannot_be_obeyed_are_a_problem_that_names_them(data, problem):
    claim = old_claim(resourceClassName="gpu", parametersRef=MAP)
    assert problem in read_own_requests(claim, sources(OURS, p=data)).problem


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (MAP | {"name": "missing"}, "ns/missing with its parameters does not exist"),
        ({"apiGroup": "x.io", "kind": "Thing", "name": "p"}, "are a Thing.x.io"),
    ],
)
def test_parameters_that_are_not_there_are_a_problem(reference, problem):
    claim = old_claim(resourceClassName="gpu", parametersRef=reference)
    assert problem in read_own_requests(claim, sources(OURS)).problem


@pytest.mark.parametrize("changes", [{"driverName": "other.io"}, {"structuredParameters": True}])
def test_a_claim_of_another_driver_s_class_is_not_ours(changes):
    assert not claim_requests.is_ours(old_claim(resourceClassName="gpu"), sources(OURS | changes))


def test_a_claim_that_we_hold_something_for_stays_ours_without_its_class():
    claim = msgspec.convert(
        {
            "metadata": {"namespace": "ns", "name": "c", "finalizers": [classic.finalizer(DRIVER)]},
            "spec": {"resourceClassName": "gone"},
        },
        classic_v1alpha2.ResourceClaim,
    )
    decoded = classic_v1alpha2.claim(claim, DRIVER)
    assert "class gone does not exist" in read_own_requests(decoded, sources()).problem


# v1alpha3.

CLASS = {
    "metadata": {"name": "gpu"},
    "spec": {
        "selectors": [{"cel": {"expression": "true"}}],
        "suitableNodes": {"nodeSelectorTerms": []},
    },
}


def opaque(requests_=(), driver=DRIVER, **reported):
    content = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "AllocationParameters"} | reported
    return {"requests": list(requests_), "opaque": {"driver": driver, "parameters": content}}


def use(requests_=(), driver=DRIVER, **reported):
    config = opaque(requests_, driver, **reported)
    config["opaque"]["parameters"] = {**config["opaque"]["parameters"], "kind": "DeviceParameters"} | reported
    return config


def test_the_allocation_carries_parameters_of_class_and_claim():
    reported = use(environment={"MODE": "fast"}, claimVariables=["DEPTH"])
    big = {"metadata": {"name": "big"}, "spec": CLASS["spec"] | {"config": [reported, opaque(optional=True)]}}
    own = use(["s"], environment={"DEPTH": "4"})
    claim = new_claim(
        requests=[
            {"name": "r", "deviceClassName": "gpu"},
            {"name": "s", "deviceClassName": "big"},
            {"name": "t", "deviceClassName": "big"},
        ],
        config=[own, use(driver="other.io"), opaque(tolerations=[{"key": "k"}])],
    )
    requested = read_own_requests(claim, sources(CLASS, big))
    assert requested.problem == ""
    assert [(entry.source, entry.requests) for entry in requested.config] == [
        ("FromClass", ("s", "t")),
        ("FromClaim", ("s",)),
    ]
    assert [entry.opaque.parameters for entry in requested.config] == [
        reported["opaque"]["parameters"],
        own["opaque"]["parameters"],
    ]


def test_requests_carry_the_selectors_of_their_class_and_parameters_of_their_own():
    request = {
        "name": "r",
        "deviceClassName": "gpu",
        "count": 2,
        "selectors": [{"cel": {"expression": "false"}}],
    }
    claim = new_claim(
        requests=[request, {"name": "s", "deviceClassName": "gpu"}],
        config=[
            opaque(["s"], optional=True),
            opaque(tolerations=[{"key": "k"}]),
            opaque(driver="other.io", optional=True),
        ],
    )
    requested = read_own_requests(claim, sources(CLASS))
    tolerations = (matching.Toleration(key="k"),)
    assert requested.requests == (
        matching.Request(name="r", count=2, selectors=("true", "false"), tolerations=tolerations),
        matching.Request(name="s", selectors=("true",), tolerations=tolerations, optional=True),
    )
    assert len(requested.suitable_nodes) == 2
    assert requested.config == ()


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ({"constraints": [{"matchAttribute": "x/y"}]}, "constraints between devices"),
        ({"requests": [{"name": "r", "deviceClassName": "gpu", "allocationMode": "All"}]}, "all devices"),
        ({"requests": [{"name": "r", "deviceClassName": "gpu", "adminAccess": True}]}, "admin access"),
        ({"requests": [{"name": "r", "deviceClassName": "none"}]}, "class none does not exist"),
        ({"requests": [{"name": "r", "deviceClassName": "gpu", "count": 33}]}, "32 are the most"),
        (
            {"requests": [{"name": "r", "deviceClassName": "gpu"}], "config": [opaque(colour="red")]},
            "cannot be read",
        ),
        (
            {"requests": [{"name": "r", "deviceClassName": "gpu"}], "config": [opaque(apiVersion="x/v1")]},
            "x/v1 is not known",
        ),
        (
            {"requests": [{"name": "r", "deviceClassName": "gpu"}], "config": [use(colour="red")]},
            "opaque parameters of the claim: colour is not a field of DeviceParameters",
        ),
        (
            {"requests": [{"name": "r", "deviceClassName": "gpu"}], "config": [use(kind="Other")]},
            "this version of Drawbar takes DeviceParameters",
        ),
        (
            {
                "requests": [{"name": "r", "deviceClassName": "gpu"}],
                "config": [use(environment={"MODE": "mine"})],
            },
            "environment.MODE is not among the claimVariables of its DeviceClass",
        ),
        (
            {
                "requests": [{"name": "r", "deviceClassName": "gpu"}],
                "config": [use(environment={"MODE": "mine"})] * 64,
            },
            "it and its classes have 64 entries of opaque parameters, and 63 are the most",
        ),
    ],
)
def test_an_unsupported_request_is_a_problem_with_its_name(devices, problem):
    assert problem in read_own_requests(new_claim(**devices), sources(CLASS)).problem


def test_a_claim_for_another_controller_or_the_scheduler_is_not_ours():
    assert not claim_requests.is_ours(new_claim(controller="other.io"), sources(CLASS))
    assert not claim_requests.is_ours(new_claim(controller=""), sources(CLASS))


# What is written.

HANDLE = handles.Handle(
    node="n1",
    allocated_at="2026-01-01T00:00:00Z",
    devices=(handles.HandleDevice(request="r", fabric="f", pool="f/e", device="d", attachment="f.d"),),
)


def test_an_allocation_is_read_as_it_was_written_in_both_versions():
    for module, written in (
        (classic_v1alpha2, classic_v1alpha2.build_allocation(HANDLE, DRIVER, shareable=True)),
        (classic_v1alpha3, classic_v1alpha3.build_allocation(HANDLE, DRIVER)),
    ):
        document = {"metadata": {"name": "c"}, "status": written}
        claim = module.claim(msgspec.convert(document, module.ResourceClaim), DRIVER)
        allocation = claim.allocation
        assert (allocation.driver, allocation.handle, allocation.node) == (DRIVER, HANDLE, "n1")
        freed = {
            "metadata": {"name": "c"},
            "status": {k: v for k, v in module.build_deallocation().items() if v is not None},
        }
        assert module.claim(msgspec.convert(freed, module.ResourceClaim), DRIVER).allocation is None


def test_a_handle_of_another_version_is_refused_and_unknown_fields_are_passed_over():
    document = handles.document(HANDLE)
    assert handles.from_document(document | {"news": 1}) == HANDLE
    for wrong in ("no json", '{"kind": "Other"}', "[]", '{"apiVersion": "drawbar.dev/v1alpha1", "kind": 1}'):
        with pytest.raises(handles.InvalidHandle):
            handles.decode(wrong)
    for deep in ("[" * 100_000, '{"a":' * 900 + "1" + "}" * 900):
        with pytest.raises(handles.InvalidHandle):
            handles.decode(deep)
    with pytest.raises(handles.InvalidHandle, match="cannot be read"):
        handles.from_document(document | {"devices": "none"})


def test_a_handle_that_has_no_room_is_refused_with_the_remedy():
    many = handles.Handle(devices=HANDLE.devices * 400)
    with pytest.raises(handles.TooLarge, match="ask for fewer devices"):
        handles.encode(many)


@pytest.mark.parametrize("data", ["?", "[" * 16_000])
def test_an_allocation_that_is_not_to_be_read_is_one_without_a_handle(data):
    handle = {"driverName": DRIVER, "data": data}
    status = {"driverName": DRIVER, "allocation": {"resourceHandles": [handle]}}
    claim = msgspec.convert({"metadata": {}, "status": status}, classic_v1alpha2.ResourceClaim)
    assert classic_v1alpha2.claim(claim, DRIVER).allocation.handle is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resourceClaimName": "x"}, "x"),
        ({"source": {"resourceClaimName": "x"}}, "x"),
        ({"resourceClaimTemplateName": "t"}, "p-device"),
        ({"source": {"resourceClaimTemplateName": "t"}}, "p-device"),
    ],
)
def test_the_claims_of_a_pod_are_found_in_every_form(spec, expected):
    document = {"metadata": {"name": "p"}, "spec": {"resourceClaims": [{"name": "device"} | spec]}}
    pod = classic.pod(msgspec.convert(document, classic.PodDocument))
    assert pod.claims == {"device": expected}
    assert pod.from_template == ({"device"} if expected == "p-device" else set())


def test_a_claim_that_was_made_from_a_template_has_the_name_that_the_pod_tells():
    document = {
        "metadata": {"name": "p"},
        "spec": {"resourceClaims": [{"name": "device", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "device", "resourceClaimName": "p-device-x7k2"}]},
    }
    pod = classic.pod(msgspec.convert(document, classic.PodDocument))
    assert pod.claims == {"device": "p-device-x7k2"}


def test_the_entries_of_other_drivers_stay_as_they_are():
    context = classic.Context(
        version=V1ALPHA3,
        name=classic.Name(namespace="ns", name="p"),
        uid="x",
        resource_version="1",
        entries={"theirs": ("n1",), "ours": ("n1",)},
    )
    assert classic.set_entries(context, {"ours": ()}) == {
        "resourceClaims": [{"name": "theirs", "unsuitableNodes": ["n1"]}, {"name": "ours"}]
    }


def test_parameters_may_be_narrowed_only():
    with pytest.raises(claim_requests.InvalidParameters, match="gives M alone"):
        claim_requests.Parameters(model="M").narrow(claim_requests.Parameters(model="N"))
