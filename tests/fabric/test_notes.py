import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import contract
from drawbar.fabric.notes import PREFIX, Note


@pytest.mark.parametrize("prefix", ["", PREFIX])
@pytest.mark.parametrize("mark", [None, "cluster-1/claim", 'with "quotes" and ü'])
def test_a_note_is_read_as_it_was_written(mark, prefix):
    request = contract.AttachRequest(request_id="r-1", device_id="d", host_id="h", mark=mark)
    text = Note.from_request(request).text(prefix=prefix)
    assert Note.from_text(text, prefix=prefix) == Note(request_id="r-1", mark=mark)


@pytest.mark.parametrize(
    "content",
    [
        None,
        7,
        {},
        "",
        "A zone of an operator",
        PREFIX,
        PREFIX + "{",
        PREFIX + "[]",
        PREFIX + "[" * 100_000,
        PREFIX + '{"request":7,"mark":{}}',
        PREFIX + '{"request":"","mark":""}',
        PREFIX + '{"request":"' + "x" * (contract.STRING_BYTES + 1) + '"}',
        PREFIX + '{"request":"\\ud800' + "x" * contract.STRING_BYTES + '"}',
    ],
    ids=lambda content: repr(content)[:30],
)
def test_a_text_of_another_client_is_no_note(content):
    assert Note.from_text(content, prefix=PREFIX) == Note()


def test_a_note_without_the_prefix_is_none_where_one_is_expected():
    assert Note.from_text(Note(request_id="r-1").text(), prefix=PREFIX) == Note()


@given(st.text())
def test_no_text_is_refused(content):
    Note.from_text(content)
    Note.from_text(PREFIX + content, prefix=PREFIX)
