"""What a claim that asks for immediate allocation gets, decided on values."""

import datetime

import msgspec
import pytest

from drawbar.driver import expressions
from drawbar.driver.api import claims, demands, fabrics, meta
from drawbar.driver.catalogue import reasons
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching
from drawbar.driver.controller.immediate import decisions
from drawbar.driver.controller.pools import devices
from drawbar.fabric import contract

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
DRIVER = "drawbar.dev"
PARAMETERS = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
OPAQUE = claims.OpaqueConfiguration(driver=DRIVER, parameters=PARAMETERS)


def cel(text):
    return demands.Selector(cel=demands.Cel(expression=text))


def of_class(name):
    return cel(f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].class == "{name}"')


def classes(*class_names, config=()):
    return {
        f"{name}.drawbar.dev": demands.DeviceClass(
            metadata=meta.ObjectMeta(name=name),
            spec=demands.ClassSpec(selectors=(of_class(name),), config=config),
        )
        for name in class_names
    }


def key(name, fabric="fab"):
    return names.DeviceKey(fabric=fabric, device=name)


def device(name, kind="gpu", model="H100", *, fabric="fab", free=True):
    listed = contract.Device(
        id=name, enclosure="enc", device_class=contract.DeviceClass(kind), model=model, serial=f"SN-{name}"
    )
    shown = devices.build_device(DRIVER, fabric, listed, ())
    return matching.Device(key=key(name, fabric), pool=f"{fabric}/enc", shown=shown, free=free)


def inventory(*offered, hosts=("node-1", "node-2"), ports=None, rules=(), models=None):
    reached = {node: f"host-{node}" for node in hosts}
    by_name = {
        name: matching.Fabric(
            name=name,
            hosts=reached,
            ports=ports or dict.fromkeys(hosts),
            rules=rules,
            models=models or {},
        )
        for name in {device.key.fabric for device in offered}
    }
    return matching.Inventory(fabrics=by_name, devices={device.key: device for device in offered})


def request(name="gpu", *, kind="gpu", count=1, selector="", **more):
    way = demands.Way(
        device_class_name=f"{kind}.drawbar.dev",
        count=count,
        selectors=(cel(selector),) if selector else (),
        **more,
    )
    return demands.Request(name=name, exactly=way)


def claim(*requests, config=(), constraints=(), annotations=None):
    metadata = meta.ObjectMeta(name="c", namespace="default", uid="u", annotations=annotations or {})
    wanted = demands.Devices(requests=requests, config=config, constraints=constraints)
    return demands.Claim(metadata=metadata, spec=demands.ClaimSpec(devices=wanted))


def judge(device, expression):
    try:
        return expressions.matches(expression, DRIVER, device.shown)
    except expressions.SelectorError:
        return False


def plan_claim(asked, offered, *, nodes=("node-1", "node-2"), avoided=(), classes_by_name=None):
    observed = decisions.OpenClaim(
        driver=DRIVER,
        claim=asked,
        classes=classes_by_name if classes_by_name is not None else classes("gpu", "nvme"),
        inventory=offered,
        nodes=nodes,
        avoided=frozenset(avoided),
    )
    return decisions.plan(observed, judge, NOW)


def read_allocation(action):
    assert isinstance(action, decisions.Allocate), action
    return action.node, [(result.request, result.device) for result in action.allocation.devices.results]


def test_the_allocation_equals_the_schedulers():
    action = plan_claim(claim(request()), inventory(device("g-0")))
    assert msgspec.json.decode(msgspec.json.encode(action.allocation)) == {
        "devices": {
            "results": [
                {
                    "request": "gpu",
                    "driver": DRIVER,
                    "pool": "fab/enc",
                    "device": "g-0",
                    "bindingConditions": ["drawbar.dev/attached", "drawbar.dev/visible"],
                    "bindingFailureConditions": ["drawbar.dev/attach-failed", "drawbar.dev/node-failed"],
                }
            ]
        },
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
            ]
        },
        "allocationTimestamp": "2026-01-02T03:04:05Z",
    }
    assert (action.node, action.devices) == ("node-1", (key("g-0"),))


@pytest.mark.parametrize(
    ("of_class", "own", "problem"),
    [
        ({}, {"colour": "red"}, "opaque parameters of the claim: colour is not a field"),
        ({"colour": "red"}, {}, "opaque parameters of the DeviceClass of request gpu: colour is not a field"),
        ({}, {"environment": {"MODE": "mine"}}, "claimVariables of its DeviceClass"),
    ],
)
def test_a_claim_whose_parameters_cannot_be_obeyed_is_not_allocated(of_class, own, problem):
    def opaque(**content):
        opaque = claims.OpaqueConfiguration(driver=DRIVER, parameters=PARAMETERS | content)
        return (claims.AllocatedConfiguration(opaque=opaque),)

    asked = claim(request(), config=opaque(**own))
    classes_by_name = classes("gpu", config=opaque(**of_class))
    action = plan_claim(asked, inventory(device("g-0")), classes_by_name=classes_by_name)
    assert isinstance(action, decisions.Wait)
    assert action.reason == "InvalidParameters"
    assert problem in action.message


def test_the_selectors_of_class_and_request_decide():
    offered = inventory(device("g-0", model="T4"), device("d-0", "nvme"), device("g-1", model="H100"))
    asked = claim(request(selector=f'device.attributes["{DRIVER}"].model == "H100"'))
    assert read_allocation(plan_claim(asked, offered)) == ("node-1", [("gpu", "g-1")])


def test_only_free_devices_are_allocated():
    offered = inventory(device("g-0", free=False), device("g-1"))
    assert read_allocation(plan_claim(claim(request()), offered))[1] == [("gpu", "g-1")]
    assert isinstance(plan_claim(claim(request(count=2)), offered), decisions.Wait)


def test_all_requests_are_met_on_one_node_or_none_is():
    offered = inventory(device("g-0"), device("d-0", "nvme"), ports={"node-1": 1, "node-2": 2})
    asked = claim(request(), request("disk", kind="nvme"))
    assert read_allocation(plan_claim(asked, offered)) == ("node-2", [("gpu", "g-0"), ("disk", "d-0")])
    assert isinstance(plan_claim(asked, offered, nodes=("node-1",)), decisions.Wait)


def test_a_picky_request_is_not_robbed_by_one_that_takes_anything():
    offered = inventory(device("g-0", model="H100"), device("g-1", model="T4"))
    asked = claim(request("any"), request("picky", selector=f'device.attributes["{DRIVER}"].model == "H100"'))
    assert read_allocation(plan_claim(asked, offered))[1] == [("any", "g-1"), ("picky", "g-0")]


def test_alternatives_are_tried_in_their_order():
    ways = (
        demands.Way(name="best", device_class_name="gpu.drawbar.dev", count=2),
        demands.Way(name="good", device_class_name="gpu.drawbar.dev"),
    )
    asked = claim(demands.Request(name="gpu", first_available=ways))
    assert read_allocation(plan_claim(asked, inventory(device("g-0"))))[1] == [("gpu/good", "g-0")]
    both = inventory(device("g-0"), device("g-1"))
    assert read_allocation(plan_claim(asked, both))[1] == [("gpu/best", "g-0"), ("gpu/best", "g-1")]


def test_the_rules_of_the_fabric_hold():
    rules = (fabrics.ModelRule(model="H100", max_per_node=1),)
    offered = inventory(device("g-0"), rules=rules, models={"node-1": {"H100": 1}})
    assert read_allocation(plan_claim(claim(request()), offered))[0] == "node-2"


def test_a_device_that_failed_before_is_the_last_choice():
    offered = inventory(device("g-0"), device("g-1"))
    assert read_allocation(plan_claim(claim(request()), offered, avoided=[key("g-0")]))[1] == [("gpu", "g-1")]
    assert read_allocation(plan_claim(claim(request()), offered, avoided=[key("g-0"), key("g-1")]))[1] == [
        ("gpu", "g-0")
    ]


def test_parameters_come_along_for_the_requests_that_they_are_for():
    entry = claims.AllocatedConfiguration(opaque=OPAQUE)
    named = claims.AllocatedConfiguration(requests=("disk",), opaque=OPAQUE)
    asked = claim(request(), config=(entry, named))
    action = plan_claim(asked, inventory(device("g-0")), classes_by_name=classes("gpu", config=(entry,)))
    assert [(entry.source, entry.requests) for entry in action.allocation.devices.config] == [
        ("FromClass", ("gpu",)),
        ("FromClaim", ()),
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (claim(), "it asks for no device"),
        (claim(request(), constraints=({"matchAttribute": "a/b"},)), "it has constraints"),
        (claim(request(allocation_mode="All")), "request gpu has the allocationMode All"),
        (claim(request(admin_access=True)), "request gpu asks for admin access"),
        (claim(request(capacity={"requests": {"memory": "1Gi"}})), "request gpu asks for a capacity"),
    ],
)
def test_features_of_the_scheduler_are_refused_with_the_reason(asked, words):
    action = plan_claim(asked, inventory(device("g-0")))
    assert isinstance(action, decisions.Wait)
    assert (action.reason, words in action.message) == (reasons.IMMEDIATE_ALLOCATION_UNSUPPORTED, True)


def test_a_missing_class_is_named():
    action = plan_claim(claim(request(kind="fpga")), inventory(device("g-0")))
    assert (action.reason, action.message) == (
        reasons.DEVICE_CLASS_MISSING,
        "there is no DeviceClass fpga.drawbar.dev",
    )


def test_a_node_that_cannot_be_served_is_named():
    demand = {claims.NODE_ANNOTATION: "node-9"}
    action = plan_claim(claim(request(), annotations=demand), inventory(device("g-0")), nodes=())
    assert action.message.startswith("node node-9 is not reached by a Fabric")


def make_allocated_claim(*reported, reserved=(), finalizers=(), drivers=(DRIVER,), node="node-1"):
    results = tuple(
        claims.AllocationResult(request="gpu", driver=driver, pool="fab/enc", device="g-0")
        for driver in drivers
    )
    conditions = tuple(
        meta.Condition(type=f"{DRIVER}/{condition}", status="True", message="dark") for condition in reported
    )
    status = claims.ClaimStatus(
        allocation=claims.Allocation(
            devices=claims.DeviceAllocation(results=results), node_selector=claims.one_node(node)
        ),
        reserved_for=tuple(claims.Consumer(resource="pods", name=pod, uid=pod) for pod in reserved),
        devices=(claims.AllocatedDevice(driver=DRIVER, pool="fab/enc", device="g-0", conditions=conditions),),
    )
    return claims.ResourceClaim(metadata=meta.ObjectMeta(name="c", finalizers=finalizers), status=status)


@pytest.mark.parametrize("reported", ["attach-failed", "node-failed"])
def test_a_failed_allocation_is_taken_back(reported):
    action = decisions.review(make_allocated_claim("attached", reported), DRIVER, node_gone=False)
    assert action == decisions.TakeBack(
        reason=reasons.IMMEDIATE_ALLOCATION_FAILED,
        message="fab/enc/g-0 on node node-1: dark",
        node="node-1",
        devices=(key("g-0"),),
    )


def test_an_allocation_on_a_node_that_is_gone_is_taken_back():
    action = decisions.review(make_allocated_claim("attached", "visible"), DRIVER, node_gone=True)
    assert action is not None
    assert action.reason == reasons.NODE_GONE


@pytest.mark.parametrize(
    ("allocated_claim", "gone"),
    [
        (make_allocated_claim("attached", "visible"), False),
        (make_allocated_claim("attach-failed", reserved=("pod",)), False),
        (make_allocated_claim("attached", "visible", reserved=("pod",)), True),
        (make_allocated_claim("attach-failed", finalizers=(claims.SCHEDULED,)), False),
        (make_allocated_claim("attach-failed", drivers=(DRIVER, "other.example")), False),
        (make_allocated_claim("attach-failed", drivers=("other.example",)), True),
    ],
    ids=["well", "in-use", "in-use-on-a-gone-node", "the-schedulers", "shared-with-others", "of-others"],
)
def test_any_other_allocation_is_left_alone(allocated_claim, gone):
    assert decisions.review(allocated_claim, DRIVER, node_gone=gone) is None
