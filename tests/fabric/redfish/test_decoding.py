"""Answers in whatever form services send them."""

import datetime
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawbar.fabric import budget
from drawbar.fabric.redfish import decoding

BODY = b'{"Id": "a"}'
# The same in each process that collects these tests.
GZIP = gzip.compress(BODY, mtime=0)
NOW = datetime.datetime(2026, 10, 21, 7, 28, tzinfo=datetime.UTC)


def unpack_body(raw, encoding):
    return decoding.unpack(raw, {"Content-Encoding": encoding}, budget.Listing(budget.Limits(), "f"))


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (BODY, ""),
        (BODY, "identity"),
        (GZIP, "gzip"),
        (GZIP, ""),
        (GZIP, "X-GZIP"),
        (zlib.compress(BODY), "deflate"),
        (zlib.compress(BODY)[2:-4], "deflate"),
        (gzip.compress(zlib.compress(BODY), mtime=0), "deflate, gzip"),
        (gzip.compress(BODY[:3], mtime=0) + gzip.compress(BODY[3:], mtime=0), "gzip"),
        (BODY, "gzip"),
        (BODY, "UTF-8"),
    ],
)
def test_an_answer_is_unpacked(raw, encoding):
    assert unpack_body(raw, encoding) == BODY


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [(GZIP[:-9], "gzip"), (GZIP[:-8] + bytes(8), "gzip"), (b"text", "gzip"), (b"text", "br"), (b"", "gzip")],
)
def test_an_answer_that_cannot_be_unpacked_is_damaged(raw, encoding):
    with pytest.raises(decoding.Damaged):
        unpack_body(raw, encoding)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (BODY, {"Id": "a"}),
        (b"\xef\xbb\xbf" + BODY, {"Id": "a"}),
        (b" ", {}),
        (b"[1]", None),
        (b"<html>", None),
        (b'{"Id": "a"', None),
        (b'{"Id": "a", "X": NaN, "Y": -Infinity}', {"Id": "a", "X": None, "Y": None}),
        (b'{"Id": "a", "X": "4\xb0\t\x00"}', {"Id": "a", "X": "4\ufffd\t\0"}),
        (rb'{"Id": "a", "X": "\ud83d\ude00 \ud83d"}', {"Id": "a", "X": "\U0001f600 \ufffd"}),
        (b'{"X": NaN' + b"[" * 100_000, None),
        (b"[NaN]", None),
    ],
)
def test_an_answer_is_an_object_or_none(raw, read):
    assert decoding.json_object(raw) == read


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b'{"error": {"message": "No."}}', {"error": {"message": "No."}}),
        (b'"No."', {"message": "No."}),
        (b'{"error": {"message": "No\n."}}', {"error": {"message": "No\n."}}),
        (b"Attribute not found: @odata.type.", {"message": "Attribute not found: @odata.type."}),
        (b"<html><title>405 Not Allowed</title>", {"message": "405 Not Allowed"}),
        (b"<html>", {"message": ""}),
        (b"[1]", {}),
        (b"", {"message": ""}),
    ],
)
def test_a_refusal_is_read_in_any_form(raw, read):
    assert decoding.refusal(raw) == read


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("7\x1f", 7.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2020 07:28:30 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("-1", None),
    ],
)
def test_a_time_to_wait_is_a_number_or_a_date(header, seconds):
    assert decoding.retry_after_seconds(header, NOW) == seconds


@given(st.binary(max_size=300), st.text(max_size=60))
def test_no_answer_is_an_unexpected_error(raw, text):
    decoding.json_object(raw)
    decoding.refusal(raw)
    decoding.retry_after_seconds(text)
