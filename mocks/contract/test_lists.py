"""Lists: selectors, pages, versions."""

import pytest

GROUP = "contract.drawbar.dev/group"


@pytest.fixture
async def three(world):
    """Create three objects that share a label; return their selector."""
    group = world.name("group")
    for number, colour in enumerate(("red", "green", "")):
        labels = {GROUP: group, "number": str(number)} | ({"colour": colour} if colour else {})
        await world.make("configmaps", f"{group}-{number}", metadata={"labels": labels})
    return f"{GROUP}={group}"


async def test_a_list_has_a_kind_and_a_version_and_its_items_have_neither_kind(world, three):
    reply = await world.api.get(world.path("configmaps"), labelSelector=three)
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(reply.version) >= max(int(item["metadata"]["resourceVersion"]) for item in reply.items)
    assert len(reply.items) == 3
    assert not any("kind" in item or "apiVersion" in item for item in reply.items)


async def test_a_list_is_in_the_order_of_names(world, three):
    reply = await world.api.get(world.path("configmaps"), labelSelector=three)
    assert reply.names == sorted(reply.names)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("colour=red", "0"),
        ("colour==red", "0"),
        ("colour!=red", "12"),
        ("colour in (red, green)", "01"),
        ("colour notin (red)", "12"),
        ("colour", "01"),
        ("!colour", "2"),
        ("colour=red,number=0", "0"),
        ("colour=red,number=1", ""),
        ("number>0", "12"),
        ("number<1", "0"),
    ],
)
async def test_labels_select(world, three, selector, selected):
    reply = await world.api.get(world.path("configmaps"), labelSelector=f"{three},{selector}")
    assert "".join(name[-1] for name in reply.names) == selected


@pytest.mark.parametrize("selector", ["a b", "a in red", "a=b=c", "=x,"])
async def test_a_label_selector_that_does_not_parse_is_a_bad_request(world, selector):
    assert (await world.api.get(world.path("configmaps"), labelSelector=selector)).code == 400


async def test_fields_select_by_name_and_namespace(world, three):
    name = (await world.api.get(world.path("configmaps"), labelSelector=three)).names[1]
    reply = await world.api.get(world.path("configmaps"), fieldSelector=f"metadata.name={name}")
    assert reply.names == [name]
    remaining = await world.api.get(
        world.path("configmaps"), labelSelector=three, fieldSelector=f"metadata.name!={name}"
    )
    assert len(remaining.names) == 2
    home = f"metadata.namespace={world.namespace}"
    everywhere = await world.api.get("/api/v1/configmaps", labelSelector=three, fieldSelector=home)
    assert len(everywhere.names) == 3


@pytest.mark.parametrize(
    ("plural", "field"),
    [
        ("configmaps", "data.a"),
        pytest.param("resourceclaims", "spec.devices", marks=pytest.mark.needs("v1")),
        pytest.param("resourceslices", "spec.pool", marks=pytest.mark.needs("v1")),
    ],
)
async def test_a_field_that_a_kind_does_not_offer_selects_nothing_but_an_error(world, plural, field):
    reply = await world.api.get(world.path(plural), fieldSelector=f"{field}=x")
    assert (reply.code, reply.reason) == (400, "BadRequest")


async def test_a_list_over_all_namespaces_holds_those_of_each(world, three):
    home = (await world.make("namespaces"))["metadata"]["name"]
    labels = dict([three.split("=")])
    await world.make("configmaps", metadata={"namespace": home, "labels": labels})
    reply = await world.api.get("/api/v1/configmaps", labelSelector=three)
    assert {item["metadata"]["namespace"] for item in reply.items} == {world.namespace, home}


async def test_a_limit_makes_pages_that_hold_each_object_once(world, three):
    path, names, query = world.path("configmaps"), [], {}
    while True:
        page = await world.api.get(path, labelSelector=three, limit=1, **query)
        names += page.names
        token = page.body["metadata"].get("continue")
        if not token:
            break
        query = {"continue": token}
    assert len(names) == len(set(names)) == 3


async def test_a_page_says_how_many_remain_if_nothing_is_selected(world):
    home = (await world.make("namespaces"))["metadata"]["name"]
    for _ in range(3):
        await world.make("leases", metadata={"namespace": home}, spec={})
    page = await world.api.get(world.path("leases", namespace=home), limit=2)
    assert page.body["metadata"]["remainingItemCount"] == 1


async def test_later_pages_show_the_world_of_the_first(world, three):
    path = world.path("configmaps")
    first = await world.api.get(path, labelSelector=three, limit=1)
    last = (await world.api.get(path, labelSelector=three)).names[-1]
    await world.api.delete(world.path("configmaps", last))
    rest = await world.api.get(path, labelSelector=three, **{"continue": first.body["metadata"]["continue"]})
    assert last in rest.names
    assert rest.version == first.version


async def test_a_made_up_continue_token_is_a_bad_request(world):
    reply = await world.api.get(world.path("configmaps"), limit=1, **{"continue": "bogus"})
    assert reply.code == 400


async def test_a_list_from_the_cache_is_allowed(world, three):
    reply = await world.api.get(world.path("configmaps"), labelSelector=three, resourceVersion="0")
    assert reply.code == 200


async def test_a_list_is_not_older_than_asked(world):
    made = await world.make("configmaps")
    version = made["metadata"]["resourceVersion"]
    reply = await world.api.get(
        world.path("configmaps"),
        resourceVersion=version,
        resourceVersionMatch="NotOlderThan",
        fieldSelector=f"metadata.name={made['metadata']['name']}",
    )
    assert int(reply.version) >= int(version)
    assert reply.names == [made["metadata"]["name"]]


async def test_a_list_can_be_of_exactly_one_moment(world):
    made = await world.make("configmaps")
    await world.api.delete(world.path("configmaps", name := made["metadata"]["name"]))
    version = made["metadata"]["resourceVersion"]
    query = {
        "resourceVersion": version,
        "resourceVersionMatch": "Exact",
        "fieldSelector": f"metadata.name={name}",
    }
    reply = await world.api.get(world.path("configmaps"), **query)
    assert (reply.code, reply.version, reply.names) == (200, version, [name])


async def test_a_version_of_the_future_times_out(world):
    version = str(10**15)
    reply = await world.api.get(
        world.path("configmaps"), resourceVersion=version, resourceVersionMatch="NotOlderThan"
    )
    assert (reply.code, reply.reason) == (504, "Timeout")
    assert reply.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_a_list_can_be_a_table(world, three):
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    reply = await world.api.get(world.path("configmaps"), accept=accept, labelSelector=three)
    assert (reply.body["kind"], len(reply.body["rows"])) == ("Table", 3)
    assert [column["name"] for column in reply.body["columnDefinitions"]] == ["Name", "Data", "Age"]


async def test_a_list_of_metadata_alone_has_no_data(world, three):
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    reply = await world.api.get(world.path("configmaps"), accept=accept, labelSelector=three)
    assert reply.body["kind"] == "PartialObjectMetadataList"
    assert {item["kind"] for item in reply.items} == {"PartialObjectMetadata"}


@pytest.mark.needs("v1")
async def test_slices_are_selected_by_driver_and_by_node(world):
    from contract import bodies

    for node, name in ((None, world.name("s")), ("node-a", world.name("s"))):
        fields = {"nodeName": node, "nodeSelector": None} if node else {}
        body = bodies.slice_of(name, driver=world.driver, **fields)
        assert (await world.post("resourceslices", body)).code == 201
    path = world.path("resourceslices")
    both = await world.api.get(path, fieldSelector=f"spec.driver={world.driver}")
    assert len(both.names) == 2
    on_node = await world.api.get(path, fieldSelector=f"spec.driver={world.driver},spec.nodeName=node-a")
    assert len(on_node.names) == 1
    free = await world.api.get(path, fieldSelector=f"spec.driver={world.driver},spec.nodeName=")
    assert len(free.names) == 1


@pytest.mark.needs("since 1.37")
async def test_slices_are_selected_by_pool_since_137(world):
    from contract import bodies

    name = world.name("s")
    await world.post("resourceslices", bodies.slice_of(name, driver=world.driver))
    reply = await world.api.get(world.path("resourceslices"), fieldSelector=f"spec.pool.name={name}")
    assert reply.names == [name]
