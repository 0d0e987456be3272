"""The search for devices that meet all requests of a pod."""

from drawbar.driver.api import fabrics, slices
from drawbar.driver.controller import names
from drawbar.driver.controller.allocation import matching


def make_stock(models, *, ports=None, rules=(), has=None, refused=()):
    devices = {}
    for number, model in enumerate(models):
        key = names.DeviceKey(fabric="f", device=f"d{number}")
        shown = slices.Device(name=key.device, attributes={"model": slices.Attribute(string=model)})
        devices[key] = matching.Device(key=key, pool="f", shown=shown, free=True)
    fabric = matching.Fabric(
        name="f",
        hosts={"n1": "h1", "n3": "h3"},
        ports={"n1": ports},
        rules=rules,
        models={"n1": has or {}},
        refused={"n1": frozenset(names.DeviceKey(fabric="f", device=device) for device in refused)},
    )
    inventory = matching.Inventory(fabrics={"f": fabric}, devices=devices)
    return matching.Stock(inventory, lambda device, expression: device.key.device == expression)


def search(stock_, *wanted, node="n1"):
    matched = matching.Search(stock_, wanted).match_on(node)
    return None if matched is None else [sorted(key.device for key in keys) for keys in matched]


def test_a_request_leaves_the_device_to_the_one_that_has_no_other():
    any_ = matching.Request(name="any")
    picky = matching.Request(name="picky", selectors=("d0",))
    assert search(make_stock("ab"), any_, picky) == [["d1"], ["d0"]]


def test_requests_are_never_allocated_in_part():
    request = matching.Request(name="one", selectors=("d0",))
    assert search(make_stock("ab"), request, request) is None


def test_ports_and_nodes_out_of_reach_limit_the_search():
    both = matching.Request(name="both", count=2)
    assert search(make_stock("ab", ports=1), both) is None
    assert search(make_stock("ab", ports=2), both) == [["d0", "d1"]]
    assert search(make_stock("ab"), both, node="n2") is None


def test_a_device_that_the_manager_refuses_on_a_node_goes_to_others_only():
    request, both = matching.Request(name="one"), matching.Request(name="both", count=2)
    stock = make_stock("aa", refused=["d0"])
    assert search(stock, request) == [["d1"]]
    assert search(stock, both) is None
    looking = matching.Search(stock, (both,))
    assert [looking.match_on(node) is None for node in ("n1", "n3", "n1")] == [True, False, True]


def test_the_rules_of_a_fabric_limit_the_search():
    rule = fabrics.ModelRule(model="a", max_per_node=1)
    both = matching.Request(name="both", count=2)
    assert search(make_stock("aab", rules=(rule,)), both) == [["d0", "d2"]]
    assert search(make_stock("aa", rules=(rule,)), both) is None
    request = matching.Request(name="one")
    assert search(make_stock("ab", rules=(rule,), has={"a": 1}), request) == [["d1"]]


def test_a_search_without_end_ends_without_an_answer():
    rule = fabrics.ModelRule(model="m0", not_with=tuple(f"m{number}" for number in range(1, 12)))
    wanted = [matching.Request(name=f"r{number}") for number in range(12)]
    stock_ = make_stock([f"m{number}" for number in range(12)], rules=(rule,))
    assert search(stock_, *wanted) is None


def test_a_claim_may_ask_for_any_number_of_devices():
    assert search(make_stock("ab"), matching.Request(name="all", count=10**15)) is None
    everything = search(make_stock("a" * 3000), matching.Request(name="all", count=3000))
    assert len(everything[0]) == 3000
