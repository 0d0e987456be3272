"""The annotation with the devices that are left to others."""

import pytest

from drawbar.driver.api import leftout

GPU = leftout.LeftOut(device="gpu-1", why="driver", reason="driver gpu.nvidia.com offers it")


def test_an_encoded_list_is_decoded_and_an_empty_one_is_empty():
    assert leftout.decode(leftout.encode([GPU])) == (GPU,)
    assert leftout.encode([]) == ""


def test_the_annotation_is_bounded():
    many = [leftout.LeftOut(device=f"gpu-{number}", why="driver", reason="x" * 5000) for number in range(500)]
    text = leftout.encode(many)
    assert len(text) < 32 * 1024
    assert len(leftout.decode(text)) == leftout.DEVICES_MAX


@pytest.mark.parametrize("text", ["", "x", "{}", "[1]", '[{"device": 1}]', "[" * 100_000, "[{}]", "\ud800"])
def test_the_text_of_another_writer_is_no_devices(text):
    assert leftout.decode(text) == ()
