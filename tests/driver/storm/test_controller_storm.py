"""The whole controller in the storm, with devices that are given one by one."""

import pytest
from tests.driver.storm import machine


@pytest.mark.timeout(machine.TIMEOUT_SECONDS)
def test_no_device_is_attached_twice_lost_or_left_behind_in_a_storm():
    machine.run(machine.StormMachine)
