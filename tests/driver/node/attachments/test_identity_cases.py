"""Devices as managers describe them, and cards as kernels show them: which of them are the same.

Each case has the identifiers of both sides, the right answer, and the reason for it.
"""

import json
from pathlib import Path

import msgspec
import pytest
from tests.scenes import cards as scenes

from drawbar.driver.controller.attachments import identities
from drawbar.driver.node.attachments import matching, witnesses
from drawbar.driver.node.inventory import index
from drawbar.fabric import contract
from drawbar.fabric import witnesses as kinds
from drawbar.fabric.contract import DeviceClass
from drawbar.fabric.witnesses import Kind

CASES = json.loads((Path(__file__).parents[3] / "cases" / "identity" / "pairs.json").read_text())


def parametrize_cases(listed):
    return pytest.mark.parametrize("case", listed, ids=[case["id"] for case in listed])


def select(*answers):
    return parametrize_cases([case for case in CASES if case["same"] in answers])


def identifiers(listed):
    made = (kinds.identifier(Kind(kind), text, source) for kind, text, source in listed)
    return tuple(each for each in made if each is not None)


def device(case):
    shown = case["device"]
    vendor, number = (int(part, 16) or None for part in (shown["pciID"] or "0:0").split(":"))
    return contract.Device(
        id="d",
        device_class=DeviceClass(shown["class"]),
        pci_vendor_id=vendor,
        pci_device_id=number,
        serial=shown["serial"] or None,
        identifiers=identifiers(
            (kind, value, f"fabric {kind}")
            for kind, values in shown["identifiers"].items()
            for value in values
        ),
    )


def function(shown):
    subsystem = [int(part, 16) if part else None for part in shown["subsystem"]]
    made = scenes.function(
        shown["address"],
        DeviceClass(shown["class"]),
        vendor=int(shown["vendor"], 16),
        device=int(shown["device"], 16),
        subsystem_vendor=subsystem[0],
        subsystem_device=subsystem[1],
        driver=shown["driver"],
        slot=shown["slot"],
        dsn=shown["dsn"],
    )
    return msgspec.structs.replace(made, identifiers=identifiers(shown["identifiers"]))


def inventory(case):
    functions = tuple(function(shown) for shown in case["cards"])
    names = dict.fromkeys(each.slot for each in functions if each.slot)
    return index.Inventory(functions=functions, slots=tuple(map(scenes.slot, names)))


def recognise_card(case, **what):
    outcome = matching.match(inventory(case), identities.identify(device(case)), **what)
    return (outcome.card.address, outcome.by) if isinstance(outcome, matching.Found) else None


@select(True)
def test_the_same_device_is_recognised_by_its_strongest_identifier_or_its_arrival(case):
    address, identity = case["cards"][0]["address"], identities.identify(device(case))
    assert identity.sole_arrival == (case["by"] is None)
    if case["by"] is None:
        assert recognise_card(case) is None
        assert recognise_card(case, arrivals=matching.Arrivals()) == (address, "sole-arrival")
        return
    outcome = matching.match(inventory(case), identity)
    assert (outcome.card.address, outcome.by, outcome.deciding.kind) == (address, "identifier", case["by"])


@select(True, "unknowable")
def test_a_device_is_not_wrong_in_the_slot_that_the_fabric_connected(case):
    if case["slot"]:
        assert recognise_card(case, slot=case["slot"]) is not None


@select(False)
def test_another_device_is_not_taken_for_it(case):
    assert recognise_card(case) is None
    assert recognise_card(case, arrivals=matching.Arrivals()) is None
    identity = identities.identify(device(case))
    outcome = matching.match(inventory(case), identity, slot=case["slot"])
    assert isinstance(outcome, matching.Wrong)
    against = witnesses.contradiction(witnesses.compare(identity, outcome.card))
    assert against is not None
    assert outcome.why == str(against)


@select("unknowable")
def test_a_device_that_shows_no_common_identifier_is_not_guessed(case):
    assert recognise_card(case) is None
    if len(inventory(case).cards) > 1:
        assert recognise_card(case, arrivals=matching.Arrivals()) is None


@parametrize_cases(CASES)
def test_a_card_that_was_here_before_is_never_the_sole_arrival(case):
    before = frozenset(witnesses.fingerprint(card) for card in inventory(case).cards)
    outcome = recognise_card(case, arrivals=matching.Arrivals(before=before))
    assert outcome is None or outcome[1] == "identifier"
