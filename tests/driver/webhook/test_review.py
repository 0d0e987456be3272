"""What the webhook answers to an AdmissionReview."""

import tracemalloc

import msgspec
import pytest

from drawbar.driver.api import parameters
from drawbar.driver.webhook import review

HEAD = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "DeviceParameters"}
GOOD = HEAD | {"deviceFiles": {"user": 1000}}
BAD = HEAD | {"deviceFiles": {"usr": 1000}}
CLASSES = HEAD | {"attachTimeoutSeconds": 60}
WORDS = "deviceFiles.usr is not a field of DeviceParameters: did you mean user?"


def config(*documents, driver="drawbar.dev"):
    return [{"opaque": {"driver": driver, "parameters": document}} for document in documents]


def make_object(kind, entries):
    """Return an object of that kind with this configuration."""
    if kind == "DeviceClass":
        spec = {"config": entries}
    else:
        spec = {"devices": {"requests": [{"name": "r"}], "config": entries}}
        spec = {"spec": spec} if kind == "ResourceClaimTemplate" else spec
    return {"metadata": {"name": "x"}, "spec": spec}


def review_object(kind, after, before=None, *, version="v1", operation="CREATE", group="resource.k8s.io"):
    request = {
        "uid": "u1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": operation,
        "object": after,
        "oldObject": before,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return review.answer(review.read(msgspec.json.encode(body)), "drawbar.dev")


def is_allowed(*args, **more):
    return review_object(*args, **more)["response"]["allowed"]


KINDS = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
FIELD_PATHS = {
    "ResourceClaim": "spec.devices.config[1].opaque.parameters.",
    "ResourceClaimTemplate": "spec.spec.devices.config[1].opaque.parameters.",
    "DeviceClass": "spec.config[1].opaque.parameters.",
}


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1", "v1alpha3"])
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_parameters_are_refused_with_their_field(kind, version):
    reported = review_object(kind, make_object(kind, config(GOOD, BAD)), version=version)
    assert reported == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "u1",
            "allowed": False,
            "status": {
                "status": "Failure",
                "reason": "Invalid",
                "code": 422,
                "message": FIELD_PATHS[kind] + WORDS,
            },
        },
    }
    assert review_object(kind, make_object(kind, config(GOOD)), version=version)["response"] == {
        "uid": "u1",
        "allowed": True,
    }


def test_a_class_can_set_fields_that_a_claim_cannot():
    assert is_allowed("DeviceClass", make_object("DeviceClass", config(CLASSES)))
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        status = review_object(kind, make_object(kind, config(CLASSES)))["response"]["status"]
        assert "attachTimeoutSeconds is reserved for administrators" in status["message"]


def test_a_class_alone_may_have_memory_of_the_node_made():
    of_node = config(HEAD | {"memory": {"mode": "system-ram"}})
    assert is_allowed("DeviceClass", make_object("DeviceClass", of_node))
    for kind in ("ResourceClaim", "ResourceClaimTemplate"):
        status = review_object(kind, make_object(kind, of_node))["response"]["status"]
        assert (
            "memory.mode is system-ram, which is reserved for administrators: leave it out"
            in status["message"]
        )


PASSED_OVER = {
    "another driver's parameters": (
        "ResourceClaim",
        make_object("ResourceClaim", config(BAD, driver="x.dev")),
    ),
    "an object without any": ("ResourceClaim", {"metadata": {}, "spec": {}}),
    "a kind that has none": ("ResourceSlice", make_object("ResourceClaim", config(BAD))),
    "what is no list": ("DeviceClass", {"spec": {"config": "x"}}),
    "entries that are no objects": ("DeviceClass", {"spec": {"config": [None, 5, {"opaque": []}]}}),
    "a deletion": ("ResourceClaim", None),
}


@pytest.mark.parametrize(("kind", "after"), PASSED_OVER.values(), ids=list(PASSED_OVER))
def test_it_has_no_word_about(kind, after):
    assert is_allowed(kind, after)


def test_parameters_of_an_allocation_are_for_the_version_that_has_them():
    wanted = {"apiVersion": "drawbar.dev/v1alpha1", "kind": "AllocationParameters", "optional": True}
    assert is_allowed("DeviceClass", make_object("DeviceClass", config(wanted)), version="v1alpha3")
    assert not is_allowed("DeviceClass", make_object("DeviceClass", config(wanted)), version="v1")


def test_a_kind_of_that_name_in_another_group_is_not_judged():
    assert is_allowed("ResourceClaim", make_object("ResourceClaim", config(BAD)), group="example.com")


def test_an_update_that_leaves_the_parameters_as_they_are_is_let_through():
    old = make_object("DeviceClass", config(BAD))
    more = {"before": old, "operation": "UPDATE"}
    assert is_allowed("DeviceClass", old | {"metadata": {"name": "x", "labels": {"a": "b"}}}, **more)
    assert not is_allowed("DeviceClass", make_object("DeviceClass", config(GOOD, BAD)), **more)
    assert is_allowed("DeviceClass", make_object("DeviceClass", config(GOOD)), **more)


def test_an_object_in_deletion_is_admitted():
    leaving = make_object("ResourceClaim", config(BAD))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert is_allowed("ResourceClaim", leaving)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u","kind":{}}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{},"object":'
        + b"[" * 100_000,
    ],
    ids=["empty", "no text", "a list", "no request", "an older version", "brackets without end"],
)
def test_an_invalid_review_is_unreadable(body):
    with pytest.raises(review.Unreadable):
        review.read(body)


def test_more_than_the_api_server_takes_is_refused_unread():
    many = make_object("ResourceClaim", config(*[GOOD] * 33))
    large = make_object("ResourceClaim", config(GOOD | {"environment": {"A": "x" * 70_000}}))
    body = msgspec.json.encode(make_object("ResourceClaim", config(GOOD)))
    digits = msgspec.Raw(body.replace(b'"user":1000', b'"user":' + b"1" * 5000))
    for after, words in (
        (many, "spec.devices.config is larger than any configuration"),
        (large, "spec.devices.config[0].opaque.parameters are larger than 64 KiB"),
        (digits, "spec.devices.config[0].opaque.parameters"),
    ):
        assert review_object("ResourceClaim", after)["response"]["status"]["message"].startswith(words)
        assert is_allowed("ResourceClaim", after, after, operation="UPDATE") == (after is not many)


def test_the_work_for_a_body_without_a_true_word_is_bounded(monkeypatch):
    compared = []

    def matches(word, *args, **options):
        compared.append(word)
        return []

    monkeypatch.setattr(parameters.difflib, "get_close_matches", matches)
    unknown = HEAD | {f"{number}{'x' * 1000}": [[]] for number in range(50)}
    reported = review_object("ResourceClaim", make_object("ResourceClaim", config(*[unknown] * 32)))
    assert reported["response"]["status"]["message"].endswith("more")
    assert len(compared) == 32 * parameters.PROBLEMS_MAX
    assert max(map(len, compared)) <= parameters.SHOWN_CHARS


def test_unused_fields_of_an_object_are_not_decoded():
    head = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":'
    kind = b'{"group":"resource.k8s.io","version":"v1","kind":"ResourceClaim"}'
    object_ = b'{"metadata":{"labels":[%s]},"spec":{"devices":{"requests":[%s]}}}'
    lists = b",".join([b"[]"] * 300_000)
    body = head + object_ % (lists, lists) + b',"kind":' + kind + b"}}"
    tracemalloc.start()
    try:
        assert review.answer(review.read(body), "drawbar.dev")["response"]["allowed"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(body)
