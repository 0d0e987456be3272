"""The members of a page, and where the next one is."""

import pytest

from drawbar.fabric.redfish import pages
from drawbar.fabric.redfish.documents import Document

LINK = {"@odata.id": "/c/1"}


@pytest.mark.parametrize(
    ("body", "uris"),
    [
        ({"Members": [LINK, {"@odata.id": "/c/2", "Id": "2"}]}, ["/c/1", "/c/2"]),
        (
            {
                "Members": [
                    "/c/1",
                    "https://fm.example/redfish/v1/c/2",
                    "text",
                    None,
                    {},
                    {"@odata.id": ""},
                    7,
                ]
            },
            ["/c/1", "/redfish/v1/c/2", "", ""],
        ),
        ({"Members": []}, []),
        ({"Members": None, "Members@odata.count": 0}, []),
        ({"Members": None}, None),
        ({"Members": None, "Members@odata.count": 2}, None),
        ({"Members@odata.count": 0}, None),
        ({"Members": LINK}, None),
        ({"Members": "/c/1"}, None),
        ({}, None),
    ],
)
def test_a_page_without_an_array_is_never_an_empty_one(body, uris):
    members = pages.find_members(Document(uri="/c", body=body))
    assert (None if members is None else [member.uri for member in members]) == uris


@pytest.mark.parametrize(
    ("body", "uri"),
    [
        ({"Members@odata.nextLink": "/c?$skip=2"}, "/c?$skip=2"),
        ({"Members@odata.nextLink": {"@odata.id": "/c/page/2"}}, "/c/page/2"),
        ({"@odata.nextLink": "/c/page/2"}, "/c/page/2"),
        ({"Members@odata.nextLink": ""}, None),
        ({"Members@odata.nextLink": None, "@odata.nextLink": 7}, ""),
        ({"Members@odata.nextLink": "?$skip=2"}, "/c?$skip=2"),
        ({"Members@odata.nextLink": "c?$skip=2"}, "/c?$skip=2"),
        ({"Members@odata.nextLink": "redfish/v1/c?$skip=2"}, "/redfish/v1/c?$skip=2"),
        ({}, None),
    ],
)
def test_the_next_page_is_found_with_its_query(body, uri):
    assert pages.find_next(Document(uri="/c", body=body)) == uri


def test_repeated_members_are_dropped_in_their_order():
    listed = [Document(uri="/c/2"), Document(uri="/c/1"), Document(uri="/c/2")]
    assert [member.uri for member in pages.drop_repeated(listed)] == ["/c/2", "/c/1"]
