import pytest

from drawbar.fabric import contract


def attach(**changes):
    return contract.AttachRequest(**{"request_id": "r", "device_id": "d", "host_id": "h", **changes})


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        pytest.param(attach(request_id=""), "request_id is empty", id="no request id"),
        pytest.param(attach(host_id="ä" * 65), "host_id has 130 bytes", id="long host id"),
        pytest.param(attach(mark=""), "mark is empty", id="empty mark"),
        pytest.param(attach(device_id=None), "either a device id or a model", id="no device"),
        pytest.param(attach(model="m"), "either a device id or a model", id="device and model"),
    ],
)
def test_an_impossible_request_names_its_problem(request_, words):
    assert any(words in problem for problem in request_.problems())


def test_a_possible_request_has_no_problems():
    assert attach(expected_etag="2").problems() == ()
    assert contract.DetachRequest(request_id="r" * 128, device_id="d", host_id="h").problems() == ()


def test_all_problems_of_a_request_are_told():
    assert len(attach(request_id="", host_id="").problems()) == 2


def test_secrets_do_not_show_in_a_configuration():
    credentials = contract.Credentials(username="admin", password="hunter2")
    config = contract.AdapterConfig(name="f", endpoint="unix:/x", credentials=credentials)
    assert "hunter2" not in repr(config)
    assert "hunter2" not in f"{credentials} {credentials!r}"
    assert repr(credentials) == "Credentials(username, password)"


def test_the_device_classes_have_their_agreed_names():
    assert [str(kind) for kind in contract.OFFERED_CLASSES] == [
        "gpu",
        "accelerator",
        "fpga",
        "nvme",
        "cxl-memory",
        "nic",
        "other",
    ]
