"""CXL memory that is made to forget its user's data, on a mocked host with the files that Linux has for it since 6.6."""

import pytest

from drawbar.driver.node import classes, errors
from drawbar.driver.node.classes.cxl_memory import operations
from drawbar.driver.node.discovery import reader
from drawbar.driver.node.inventory import cxl, index, model
from drawbar.fabric.contract import DeviceClass
from drawbar.mocks.sysfs import MockDevice, SysfsTree


class MemoryHost:
    """A host with one memory device; `security` is the folder of its files, which a mocked tree has not."""

    def __init__(self, path, **fields):
        self.tree = SysfsTree.create(path / "sys", slots=1)
        usual = {"vendor": 0x8086, "device": 0x0D93, "serial": "4660", "memory_bytes": 1 << 29}
        self.tree.attach(1, MockDevice(device_class=DeviceClass.CXL_MEMORY, **usual | fields))
        function = reader.read_function(self.tree.root, self.tree.address(1))
        memdevs = index.by_function(cxl.read(str(self.tree.root)).memdevs)
        self.card = model.make_card((function,), {}, memdevs)

    @property
    def name(self):
        return self.card.memdevs[0].name

    def secure(self):
        folder = self.tree.root / "bus/cxl/devices" / self.name / "security"
        folder.mkdir()
        (folder / "sanitize").write_text("")
        (folder / "state").write_text("sanitize\n")
        return folder

    def eraser(self):
        return classes.by_name("cxl-memory").eraser(classes.Host.from_sysfs(self.tree.root), self.card)


def test_volatile_memory_is_sanitized_and_waited_for(tmp_path, monkeypatch):
    host, reported = MemoryHost(tmp_path), []
    security = host.secure()

    class Time:
        """The kernel's state changes while it is waited for."""

        looks = 0

        @staticmethod
        def monotonic():
            return 0.0

        @classmethod
        def sleep(cls, _):
            assert (security / "sanitize").read_text() == "1\n"
            cls.looks += 1
            if cls.looks == 2:
                (security / "state").write_text("disabled\n")

    monkeypatch.setattr(operations, "time", Time)
    host.eraser()(reported.append)
    assert (Time.looks, reported) == (2, [f"sanitizing {host.name}"])


def test_a_sanitize_without_an_end_is_no_erase(tmp_path, monkeypatch):
    monkeypatch.setattr(operations, "SANITIZE_SECONDS", -1.0)
    host = MemoryHost(tmp_path)
    host.secure()
    with pytest.raises(errors.NotCleaned, match="did not end within an hour"):
        host.eraser()(print)


def test_a_sanitize_that_the_kernel_refuses_is_no_erase(tmp_path):
    host = MemoryHost(tmp_path)
    security = host.secure()
    erase = host.eraser()
    (security / "sanitize").unlink()
    with pytest.raises(errors.NotCleaned, match=rf"{host.name} is not erased.*ENOENT"):
        erase(print)


@pytest.mark.parametrize("persistent", [False, True])
def test_unsanitizable_or_persistent_memory_is_left_alone(tmp_path, persistent):
    host = MemoryHost(tmp_path, persistent=persistent)
    if persistent:
        host.secure()
    assert host.eraser() is None


def test_a_device_without_its_driver_is_not_taken_for_erased(tmp_path):
    with pytest.raises(errors.NotCleaned, match="its driver shows no memory device"):
        MemoryHost(tmp_path, driver="").eraser()(print)
