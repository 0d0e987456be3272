"""Which host of a fabric is which node, whatever machines and kubelets write."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.driver.api import core, fabrics, meta
from drawbar.driver.controller import host_claims, hosts
from drawbar.fabric import contract
from drawbar.fabric.redfish import documents, entities

FREE, USED = contract.PortState.FREE, contract.PortState.USED
LABEL = "drawbar.node-restriction.kubernetes.io/fabric-host"
UUIDS = tuple(f"4c4c4544-0039-3510-8053-00000000000{number}" for number in range(1, 5))


def machines(*names):
    return [machine(name) for name in names]


def machine(name, uuid="", **metadata):
    status = core.NodeStatus(node_info=core.NodeInfo(system_uuid=uuid))
    return core.Node(metadata=meta.ObjectMeta(name=name, **metadata), status=status)


def host(host_id, name="", *states, **identifiers):
    identifiers = {key.replace("_", "-"): value for key, value in identifiers.items()}
    ports = tuple(contract.Port(id=str(number), state=state) for number, state in enumerate(states))
    return contract.Host(id=host_id, name=name or f"system {host_id}", ports=ports, identifiers=identifiers)


def spec(*mappings, **more):
    mapped = tuple(fabrics.HostMapping(host=host, node=node) for host, node in mappings)
    return fabrics.FabricSpec(adapter="grpc", endpoint="unix:/x", hosts=mapped, **more)


def test_a_host_is_the_node_that_the_fabric_object_says_else_the_node_of_its_name():
    mapped = hosts.node_map(
        spec(("h1", "n9")), [host("h1", "n1"), host("h2", "n2"), host("h3", "x")], machines("n2", "n9")
    )
    assert mapped.host_of == {"n9": "h1", "n2": "h2"}
    assert mapped.problems == ()


def test_the_fabric_object_names_a_host_by_its_id_for_a_machine_may_write_its_name():
    cluster = machines("n1", "n2")
    mapped = hosts.node_map(spec(("blade", "n1")), [host("h1", "blade")], cluster)
    assert mapped.host_of == {}
    (problem,) = mapped.problems
    assert "node n1, and that is the name of host h1; put the host's id there" in problem
    trusting = spec(("blade", "n1"), trust_host_names=True)
    assert hosts.node_map(trusting, [host("h1", "blade")], cluster).host_of == {"n1": "h1"}
    posing = [host("blade"), host("h2", "blade")]
    assert hosts.node_map(spec(("blade", "n1")), posing, cluster).host_of == {"n1": "blade"}


def test_a_mapping_to_a_node_that_does_not_exist_is_reported_and_the_host_is_no_other_node():
    listed = host("h1", "n1", system_uuid="u")
    mapped = hosts.node_map(spec(("h1", "n2")), [listed], [machine("n1", uuid="u")])
    assert mapped.host_of == mapped.remembered == {}
    assert mapped.problems == ("spec.hosts maps host h1 to node n2, which does not exist",)


def test_a_node_whose_configured_host_is_not_listed_is_no_other_host():
    mapped = hosts.node_map(spec(("h1", "n1")), [host("h2", "n1")], machines("n1"))
    assert mapped.host_of == {}
    assert mapped.problems == ("spec.hosts maps host h1 to node n1, and the fabric lists no such host",)


def test_two_hosts_that_the_fabric_object_maps_to_one_node_are_both_refused():
    mapped = hosts.node_map(spec(("h1", "n2"), ("h2", "n2")), [host("h1"), host("h2", "n2")], machines("n2"))
    assert mapped.host_of == {}
    assert "hosts h1, h2 would all be node n2 by spec.hosts" in mapped.problems[0]


@pytest.mark.parametrize(
    ("more", "node"),
    [
        ({"uuid": "4C4C4544-0039-3510-8053-B4C04F4D3732"}, "by-uuid"),
        ({"uuid": "44454C4C-3900-1035-8053-B4C04F4D3732"}, "by-swapped-uuid"),
        ({"uuid": "{4C4C4544-0039-3510-8053-B4C04F4D3732}"}, "by-uuid-in-braces"),
        ({"uuid": "urn:uuid:44454c4c-3900-1035-8053-b4c04f4d3732"}, "by-swapped-uuid-as-a-urn"),
        ({"labels": {"rack/host": "h1"}}, "by-id-in-a-label"),
        ({"annotations": {"rack/host": "SN 7"}}, "by-serial-in-an-annotation"),
        ({"annotations": {"drawbar.dev/serial": " sn  7"}}, "by-serial-that-the-node-tells"),
        ({"labels": {"rack/host": "blade 7"}}, "by-name-in-a-label"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_host_is_mapped_by_each_identifier_of_its_machine(more, node):
    listed = host("h1", "blade 7", system_uuid="4c4c4544-0039-3510-8053-b4c04f4d3732", serial="SN 7")
    rules = spec(node_label="rack/host", node_annotation="rack/host")
    mapped = hosts.node_map(rules, [listed], [machine(node, **more), machine("other")])
    assert (mapped.host_of, mapped.problems) == ({node: "h1"}, ())


@pytest.mark.parametrize(
    "placeholder",
    [
        "",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "To Be Filled By O.E.M.",
        "Not Specified",
        "00000000-0000-0000-0000-000000000001",
        "01000000-0000-0000-0000-000000000000",
        "11111111-2222-3333-4444-555555555555",
        "12345678-1234-1234-1234-123456789abc",
        "78563412-3412-3412-1234-123456789ABC",
        "98765432-1098-7654-3210-987654321098",
        "[Not Supported]",
    ],
)
def test_a_placeholder_is_no_identifier(placeholder):
    listed = [host("h1", system_uuid=placeholder, serial="Default string"), host("h2", "n2")]
    cluster = [
        machine(name, uuid=placeholder, annotations={host_claims.SERIAL_ANNOTATION: "default  string"})
        for name in ("n1", "n2")
    ]
    mapped = hosts.node_map(spec(), listed, cluster)
    assert (mapped.host_of, mapped.problems) == ({"n2": "h2"}, ())
    labelled = [machine("n1", labels={LABEL: placeholder})]
    assert hosts.node_map(spec(node_label=LABEL), listed, labelled).host_of == {}


@pytest.mark.parametrize("mapped_before", [False, True], ids=["new", "held"])
def test_an_identifier_of_several_machines_maps_none_and_is_reported(mapped_before):
    listed = [host("h1", "a", system_uuid="u"), host("h2", "b", system_uuid="u")]
    cluster = [machine("a", uuid="u"), machine("b", uuid="u")]
    held = {"h1": "a", "h2": "b"} if mapped_before else {}
    mapped = hosts.node_map(spec(), listed, cluster, held)
    assert mapped.remembered == held
    expected = (
        "host h2 and node a have the system UUID"
        if mapped_before
        else "hosts h1, h2 and nodes a, b all have the system"
    )
    assert any(problem.startswith(expected) for problem in mapped.problems)


def test_an_identifier_that_all_machines_share_is_one_problem_and_not_one_for_each_pair():
    many = range(500)
    listed = [host(f"h{number}", system_uuid="u") for number in many]
    mapped = hosts.node_map(spec(), listed, [machine(f"n{number}", uuid="u") for number in many])
    (problem,) = mapped.problems
    assert "and 492 more" in problem


def test_protected_identifiers_take_precedence_over_writable_ones():
    listed = host("h1", "by-name", system_uuid=UUIDS[0])
    by_fabric, by_label = machine("by-fabric"), machine("by-safe-label", labels={LABEL: "h1"})
    by_name, by_id = machine("by-name"), machine("h1")
    by_uuid, by_safe_uuid = (
        machine("by-uuid", uuid=UUIDS[0]),
        machine("by-safe-uuid", labels={LABEL: UUIDS[0]}),
    )
    held = {"h1": "by-uuid"}
    ways = (
        (spec(("h1", "by-fabric"), node_label=LABEL), [by_fabric, by_label, by_uuid], "by-fabric"),
        (spec(node_label=LABEL, trust_host_names=True), [by_label, by_name, by_uuid], "by-safe-label"),
        (spec(trust_host_names=True), [by_name, by_uuid, by_id], "by-name"),
        (spec(node_label=LABEL), [by_safe_uuid, by_uuid, by_id], "by-uuid"),
    )
    for rules, cluster, node in ways:
        mapped = hosts.node_map(rules, [listed], cluster, held)
        assert mapped.host_of == {node: "h1"}
    assert hosts.node_map(spec(node_label=LABEL), [listed], [by_safe_uuid, by_id, by_name]).host_of == {
        "by-safe-uuid": "h1"
    }
    mapped = hosts.node_map(spec(), [listed], [by_id, by_name, by_uuid])
    assert mapped.host_of == {"h1": "h1"}
    assert len(mapped.problems) == 2


@pytest.mark.parametrize(
    ("label", "safe"),
    [
        ("node-restriction.kubernetes.io/host", True),
        (LABEL, True),
        ("mynode-restriction.kubernetes.io/host", False),
        ("node-restriction.kubernetes.io", False),
        ("drawbar.dev/host", False),
        ("", False),
    ],
)
def test_the_labels_that_a_kubelet_may_not_write(label, safe):
    assert host_claims.is_restricted(label) is safe


# --- what a machine makes its BMC report ---


def system(number, name="", **more):
    body = {"@odata.id": f"/redfish/v1/Systems/{number}", "Id": number, "Name": f"System {number}"}
    body |= {"UUID": UUIDS[int(number) - 1], **({"HostName": name} if name else {}), **more}
    return entities.host(number, documents.Document.from_json(body), [])


CLUSTER = [machine("victim", uuid=UUIDS[0]), machine("mallory", uuid=UUIDS[1])]
HELD = {"1": "victim", "2": "mallory"}


@pytest.mark.parametrize("victims_name", ["", "victim"])
@pytest.mark.parametrize(
    "posing",
    [system("2", "victim"), system("2", UUID=UUIDS[0]), system("2", "victim", UUID=UUIDS[0])],
    ids=["HostName", "UUID", "both"],
)
def test_a_machine_that_takes_a_nodes_name_or_uuid_at_its_bmc_is_not_that_node(posing, victims_name):
    victim = system("1", victims_name)
    for held in (HELD, {"1": "victim"}):
        mapped = hosts.node_map(spec(), [victim, posing], CLUSTER, held)
        assert mapped.host_of.get("victim") == "1"
        assert mapped.host_of.get("mallory") == ("2" if "2" in held else mapped.host_of.get("mallory"))
        assert any(
            problem.startswith("host 2 and node victim have ") and "node victim is host 1" in problem
            for problem in mapped.problems
        )
    # Nothing was mapped yet: neither is.
    mapped = hosts.node_map(spec(), [victim, posing], CLUSTER)
    assert "victim" not in mapped.host_of
    assert any("hosts 1, 2 would all be node victim" in problem for problem in mapped.problems)


def test_a_machine_is_not_taken_for_a_node_whose_host_the_fabric_does_not_list_now():
    mapped = hosts.node_map(spec(), [system("2", "victim", UUID=UUIDS[0])], CLUSTER, HELD)
    assert mapped.host_of == {"mallory": "2"}
    assert mapped.remembered == HELD
    assert any("node victim is host 1, which the fabric does not list now" in it for it in mapped.problems)
    back = hosts.node_map(spec(), [system("1"), system("2", "victim")], CLUSTER, mapped.remembered)
    assert back.host_of == {"victim": "1", "mallory": "2"}


def test_a_host_that_shows_nothing_of_itself_for_a_moment_stays_its_node():
    silent = contract.Host(id="1", name="System 1")
    mapped = hosts.node_map(spec(), [silent, system("2", "victim")], CLUSTER, HELD)
    assert mapped.host_of == {"victim": "1", "mallory": "2"}


def label_nodes(**labels):
    return [
        msgspec.structs.replace(
            node, metadata=msgspec.structs.replace(node.metadata, labels={LABEL: labels[node.metadata.name]})
        )
        for node in CLUSTER
    ]


@pytest.mark.parametrize(
    ("labels", "posing"),
    [
        ({"victim": "SN1", "mallory": "SN2"}, system("2", UUID="SN1")),
        ({"victim": "1", "mallory": "2"}, system("2", "1")),
        ({"victim": "SN1", "mallory": "SN2"}, system("2", "SN1", SerialNumber="SN2")),
        ({"victim": UUIDS[0], "mallory": UUIDS[1]}, system("2", "victim", SerialNumber=UUIDS[0])),
    ],
    ids=["serial number as UUID", "id", "serial number", "UUID"],
)
def test_a_restricted_label_is_not_compared_with_the_host_name(labels, posing):
    victim = system("1", SerialNumber="SN1")
    mapped = hosts.node_map(spec(node_label=LABEL), [victim, posing], label_nodes(**labels), HELD)
    assert mapped.host_of == {"victim": "1", "mallory": "2"}
    if labels["victim"] != UUIDS[0]:
        assert hosts.node_map(spec(node_label=LABEL), [victim, posing], label_nodes(**labels)).problems == ()


def test_a_serial_number_that_another_machine_takes_over_does_not_move_a_restricted_label():
    labels, posing = label_nodes(victim="SN1", mallory="SN2"), system("2", SerialNumber="SN1")
    for victim in (system("1", SerialNumber="SN1"), system("1"), contract.Host(id="1", name="1")):
        mapped = hosts.node_map(spec(node_label=LABEL), [victim, posing], labels, HELD)
        assert mapped.host_of == {"victim": "1", "mallory": "2"}
    both = [system("1", SerialNumber="SN1"), posing]
    mapped = hosts.node_map(spec(node_label=LABEL), both, labels)
    assert mapped.host_of == {}
    assert "hosts 1, 2 would all be node victim by the label" in mapped.problems[0]


def test_an_administrator_who_changes_a_restricted_label_moves_the_node():
    listed = [system("1", SerialNumber="SN1"), system("2", SerialNumber="SN2")]
    for labels in (label_nodes(victim="SN2", mallory="SN1"), label_nodes(victim="2", mallory="1")):
        mapped = hosts.node_map(spec(node_label=LABEL), listed, labels, HELD)
        assert (mapped.host_of, mapped.problems) == ({"victim": "2", "mallory": "1"}, ())


def test_the_fabric_object_stands_above_a_mapping_that_holds():
    mapped = hosts.node_map(
        spec(("1", "mallory"), ("2", "victim")), [system("1"), system("2")], CLUSTER, HELD
    )
    assert (mapped.host_of, mapped.problems) == ({"victim": "2", "mallory": "1"}, ())


def test_a_node_that_is_deleted_leaves_its_host_to_another():
    again = machine("victim-2", uuid=UUIDS[0])
    mapped = hosts.node_map(spec(), [system("1"), system("2")], [again, CLUSTER[1]], HELD)
    assert mapped.host_of == {"victim-2": "1", "mallory": "2"}
    assert mapped.remembered == {"1": "victim-2", "2": "mallory"}


# --- what a kubelet writes of its Node ---

COPIES = {
    "system UUID": {"uuid": "U"},
    "serial": {"annotations": {host_claims.SERIAL_ANNOTATION: "SN"}},
    "label": {"labels": {"l": "h1"}},
    "annotation": {"annotations": {"n": "h1"}},
    "two hosts": {"annotations": {"n": "h1"}, "labels": {"l": "h2"}},
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
def test_a_node_that_copies_the_identity_of_another_never_unmaps_it_and_is_reported(copy):
    listed = [host("h1", "x", system_uuid="u", serial="SN"), host("h2", "y")]
    cluster = [machine("second", **copy), machine("first", uuid="u")]
    rules = spec(node_label="l", node_annotation="n")
    mapped = hosts.node_map(rules, listed, cluster, {"h1": "first"})
    assert mapped.host_of.get("first") == "h1"
    assert any(problem.startswith("host h1 and node second have ") for problem in mapped.problems)
    new = hosts.node_map(rules, listed, cluster)
    assert new.host_of == {}
    assert any(problem.startswith("host h1 would be nodes first, second by ") for problem in new.problems)


def test_an_administrators_word_ends_the_dispute_and_cloned_machines_are_no_problem():
    clones = [machine("a", uuid="u", labels={LABEL: "h1"}), machine("b", uuid="u", labels={LABEL: "h2"})]
    listed = [host("h1", "x", system_uuid="u"), host("h2", "y", system_uuid="u")]
    for rules in (spec(("h1", "a"), ("h2", "b")), spec(node_label=LABEL)):
        mapped = hosts.node_map(rules, listed, clones)
        assert (mapped.host_of, mapped.problems) == ({"a": "h1", "b": "h2"}, ())
    named = [host("h1", "a", system_uuid="u"), host("h2", "b", system_uuid="u")]
    mapped = hosts.node_map(spec(trust_host_names=True), named, clones)
    assert (mapped.host_of, mapped.problems) == ({"a": "h1", "b": "h2"}, ())


def test_cloned_machines_are_distinguished_by_a_label():
    clones = [machine("a", uuid="u", labels={"l": "h1"}), machine("b", uuid="u", labels={"l": "h2"})]
    listed = [host("h1", "x", system_uuid="u"), host("h2", "y", system_uuid="u")]
    mapped = hosts.node_map(spec(node_label="l"), listed, clones)
    assert (mapped.host_of, mapped.problems) == ({"a": "h1", "b": "h2"}, ())


@pytest.mark.parametrize(
    "twins",
    [
        (machine("a", uuid="u"), machine("b", uuid="U")),
        (machine("a", labels={"l": "h1"}), machine("b", labels={"l": "h1"})),
        (machine("a", annotations={"n": "SN"}), machine("b", annotations={"n": "h1"})),
        (
            machine("a", annotations={host_claims.SERIAL_ANNOTATION: "SN"}),
            machine("b", annotations={host_claims.SERIAL_ANNOTATION: "sn"}),
        ),
        (machine("a", uuid="u"), machine("b", annotations={host_claims.SERIAL_ANNOTATION: "SN"})),
        (machine("x"), machine("b", annotations={"n": "h1"})),
    ],
    ids=["system UUID", "label", "annotation", "serial", "system UUID and serial", "name and annotation"],
)
def test_two_nodes_for_one_host_are_refused_in_every_way(twins):
    rules = spec(node_label="l", node_annotation="n")
    mapped = hosts.node_map(rules, [host("h1", "x", system_uuid="u", serial="SN")], twins)
    assert mapped.host_of == {}
    names = ", ".join(sorted(node.metadata.name for node in twins))
    assert f"host h1 would be nodes {names} by " in mapped.problems[0]


def test_a_node_has_room_while_a_port_is_free_or_no_ports_are_listed():
    listed = [host("h1", "n1", USED, FREE), host("h2", "n2", USED), host("h3", "n3")]
    assert hosts.node_map(spec(), listed, machines("n1", "n2", "n3")).with_room == {"n1", "n3"}


# --- whatever one machine writes ---

NODES = ("n1", "n2", "n3", "n4")
TEXTS = st.sampled_from(("", *NODES, "h1", "h2", "h3", "SN", "N/A", *UUIDS))
RULES = st.sampled_from(
    [
        spec(),
        spec(node_label=LABEL),
        spec(node_label="l", node_annotation="n"),
        spec(("h3", "n2")),
        spec(("h3", "n2"), node_label=LABEL),
    ]
)


@st.composite
def some_hosts(draw, ids=("h1", "h2", "h3", "h4")):
    return [
        contract.Host(
            id=host_id,
            name=draw(TEXTS) or host_id,
            identifiers={
                kind: draw(TEXTS) for kind in (host_claims.SYSTEM_UUID, host_claims.SERIAL, "hostname")
            },
        )
        for host_id in ids
    ]


@st.composite
def some_nodes(draw, names=NODES, safe=None):
    return [
        machine(
            name,
            uuid=draw(TEXTS),
            labels={LABEL: safe if safe is not None else draw(TEXTS), "l": draw(TEXTS)},
            annotations={"n": draw(TEXTS), host_claims.SERIAL_ANNOTATION: draw(TEXTS)},
        )
        for name in names
    ]


@given(rules=RULES, listed=some_hosts(), cluster=some_nodes(), data=st.data())
def test_one_machines_claims_never_change_the_mapping_of_others(rules, listed, cluster, data):
    before = hosts.node_map(rules, listed, cluster)
    assert len(set(before.host_of.values())) == len(before.host_of)
    # Another controller begins with what the status has.
    fabric = fabrics.Fabric(metadata=meta.ObjectMeta(name="f"), spec=rules)
    status = fabrics.FabricStatus(
        mapped_endpoint=rules.endpoint, mapped_hosts=hosts.to_status(before.remembered)
    )
    held = hosts.from_status(msgspec.structs.replace(fabric, status=status))
    assert held == before.remembered
    attacker = data.draw(st.sampled_from(listed)).id
    own = before.node_of(attacker)
    (posing,) = data.draw(some_hosts((attacker,)))
    after_hosts = [posing if entry.id == attacker else entry for entry in listed]
    if own is not None:
        # Root of the machine has its kubelet, too, which cannot write the restricted label.
        safe = next(node.metadata.labels[LABEL] for node in cluster if node.metadata.name == own)
        (forged,) = data.draw(some_nodes((own,), safe))
        cluster = [forged if node.metadata.name == own else node for node in cluster]
    absent = data.draw(st.sets(st.sampled_from([entry.id for entry in listed])))
    for present in (after_hosts, [entry for entry in after_hosts if entry.id not in absent - {attacker}]):
        after = hosts.node_map(rules, present, cluster, held)
        for host_id, node in held.items():
            # By a restricted label a machine that shows another serial number than it loses its own node.
            assert after.remembered.get(host_id) == node or host_id == attacker
            if host_id in {entry.id for entry in present} - {attacker}:
                assert after.host_of[node] == host_id
        taken = after.node_of(attacker)
        assert taken is None or held.get(attacker) == taken or taken not in held.values()
