import pytest

from drawbar.fabric.redfish import documents
from drawbar.fabric.redfish.documents import Document

ODD = [None, 1, "text", [], [1, None, "text"], {}, {"@odata.id": 1}, True, 1e308, float("inf")]


def test_a_document_that_names_another_resource_has_the_requested_uri():
    """Or a change would affect that other resource."""
    body = {"@odata.id": "/redfish/v1/Systems/2"}
    assert Document.from_json(body, uri="/redfish/v1/Systems/1").uri == "/redfish/v1/Systems/1"


def test_a_document_has_the_uri_and_etag_of_its_own_before_those_of_the_answer():
    body = {"@odata.id": "/redfish/v1/Systems/1/", "@odata.etag": '"own"'}
    assert Document.from_json(body, uri="/redfish/v1/Systems/%31").uri == "/redfish/v1/Systems/1"
    assert Document.from_json(body).etag == '"own"'
    assert Document.from_json(body, etag='"header"').etag == '"header"'
    assert Document.from_json({}, uri="/redfish/v1/Systems/2/").uri == "/redfish/v1/Systems/2"
    assert Document.from_json({"@odata.etag": 1}).etag is None


@pytest.mark.parametrize(
    ("body", "name"),
    [({"Id": "7"}, "7"), ({}, "last"), ({"Id": 7}, "last"), ({"Id": "x" * 500}, "x" * 500)],
)
def test_the_id_is_the_property_or_the_end_of_the_uri(body, name):
    assert Document.from_json(body, uri="/redfish/v1/Systems/last").id == name


@pytest.mark.parametrize(
    ("body", "is_reference"),
    [
        ({"@odata.id": "/a"}, True),
        ({"@odata.id": "/a", "@odata.etag": "1"}, True),
        ({"@odata.id": "/a", "Id": "1"}, False),
    ],
)
def test_a_document_with_properties_is_no_mere_link(body, is_reference):
    assert Document.from_json(body).is_reference is is_reference


def test_properties_are_read_below_each_other():
    document = Document(
        uri="/a",
        body={
            "Status": {"Health": "OK"},
            "Size": {"MiB": 3.7},
            "Links": {"Zones": [{"@odata.id": "/z/1/"}, {"@odata.id": "/z/1"}, {"@odata.id": "/z/2"}]},
            "Actions": {"#Zone.AddEndpoint": {"target": "/z/1/Actions/Zone.AddEndpoint/"}},
        },
    )
    assert document.text("Status", "Health") == "OK"
    assert document.number("Size", "MiB") == 3
    assert document.links("Links", "Zones") == ("/z/1", "/z/2")
    assert document.link("Links") is None
    assert document.action("#Zone.AddEndpoint") == "/z/1/Actions/Zone.AddEndpoint"
    assert len(document.objects("Links", "Zones")) == 3


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_properties_of_another_type_are_none_or_nothing(odd):
    document = Document(uri="/a", body={"P": odd, "Actions": {"#A": odd, "#B": {"target": odd}}})
    assert isinstance(document.text("P"), str)
    assert isinstance(document.number("P"), int)
    assert document.text("P", "Q", "R") == ""
    assert document.number("P", "Q") == 0
    assert all(isinstance(entry, dict) for entry in document.objects("P"))
    assert document.link("P") is None
    assert document.links("P") == ()
    assert document.action("#A") is None
    assert document.action("#B") in {None, "text"}


@pytest.mark.parametrize("text", ["S1\0\0", " S1 ", "S1\u00ff\u00ff", "\tS1\r\n", "S1\ufffd"])
def test_a_text_has_no_padding(text):
    assert Document(uri="/a", body={"SerialNumber": text}).text("SerialNumber") == "S1"


@pytest.mark.parametrize(
    ("number", "read"),
    [
        (-1, 0),
        (0, 0),
        (2**63, 0),
        (2**63 - 1, 2**63 - 1),
        (True, 0),
        ("1", 1),
        ("1.9", 1),
        ("1\x1f", 1),
        ("-1", 0),
        ("1e9", 0),
        ("x", 0),
        (1.9, 1),
        ("65,536", 65536),
        ("6,55", 0),
        ("x16", 16),
        ("45 %", 45),
        ("65536 MB", 0),
        ("65536 MiB", 0),
    ],
)
def test_numbers_are_never_negative_nor_larger_than_the_wire_allows(number, read):
    assert documents.number({"N": number}, "N") == read


@pytest.mark.parametrize("shown", ["65536 MiB", "65,536MiB", "65536"])
def test_a_number_may_have_the_unit_of_its_property(shown):
    assert documents.number({"CapacityMiB": shown}, "CapacityMiB") == 65536


def test_references_have_the_form_of_a_request():
    assert documents.references(("/a", "/b")) == [{"@odata.id": "/a"}, {"@odata.id": "/b"}]


def test_a_path_loses_its_slash_at_the_end_but_for_the_root():
    assert (documents.path("/a/"), documents.path("/")) == ("/a", "/")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/redfish/v1/Systems/1/", "/redfish/v1/Systems/1"),
        ("https://fm-01.example:8443/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
        ("HTTP://[::1]/redfish/v1/", "/redfish/v1"),
        ("https://user:secret@fm-01.example/redfish/v1", "https://redacted@fm-01.example/redfish/v1"),
        ("//user:se?cret@fm-01.example/redfish/v1", "//redacted@fm-01.example/redfish/v1"),
        ("/redfish/v1/Systems/a@b", "/redfish/v1/Systems/a@b"),
        ("https://fm-01.example/other", "https://fm-01.example/other"),
        ("//elsewhere/redfish/v1", "/redfish/v1"),
        ("//elsewhere/other", "//elsewhere/other"),
        ("/", "/"),
    ],
)
def test_links_are_compared_without_the_name_by_which_the_manager_knows_itself(uri, path):
    assert documents.path(uri) == path
