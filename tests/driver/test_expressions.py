"""CEL selectors over the devices of a node."""

import subprocess
import sys

import pytest

from drawbar.driver import expressions
from drawbar.driver.api import slices

DEVICE = slices.Device(
    name="gpu-a",
    attributes={
        "class": slices.Attribute(string="gpu"),
        "virtual": slices.Attribute(bool_=False),
        "resource.kubernetes.io/numaNode": slices.Attribute(int_=1),
        "firmware": slices.Attribute(version="1.2.3"),
    },
    capacity={"memory": slices.Capacity(value="80Gi")},
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "drawbar.dev"', True),
        ('device.attributes["drawbar.dev"].class == "gpu"', True),
        ('device.attributes["drawbar.dev"].class in ["fpga", "nic"]', False),
        ('device.attributes["resource.kubernetes.io"].numaNode == 1', True),
        ('!device.attributes["drawbar.dev"].virtual', True),
        ('device.attributes["drawbar.dev"].firmware.matches("^1[.]")', True),
        ('device.capacity["drawbar.dev"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["drawbar.dev"].memory.isLessThan(quantity("80G"))', False),
        ('device.capacity["drawbar.dev"].memory.isGreaterThan(quantity("80G"))', True),
        ('device.attributes["drawbar.dev"].class.upperAscii() == "GPU"', True),
        ('has(device.attributes["vendor.example"].speed)', False),
        ("device.attributes['vendor.example'].size() == 0", True),
    ],
)
def test_a_selector_sees_a_device_as_a_deviceclass_does(expression, expected):
    assert expressions.matches(expression, "drawbar.dev", DEVICE) is expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ('device.attributes["drawbar.dev"].speed == 1', "it has no speed"),
        ("1", "yields int"),
        ("nothing", "Undefined variable"),
        ('quantity("x") > 1', "not a quantity"),
    ],
)
def test_a_selector_that_cannot_be_answered_has_the_reason(expression, reason):
    assert expressions.fault(expression) is None
    with pytest.raises(expressions.SelectorError, match=reason):
        expressions.matches(expression, "drawbar.dev", DEVICE)


def run(*lines):
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_terminal_toolkit_is_never_imported_and_the_library_only_for_a_selector():
    lines = (
        "import sys",
        "from drawbar.driver import expressions",
        "from drawbar.driver.node.local import selections",
        "selections.problems(selections.Selection())",
        "print('cel.cel' in sys.modules, end=' ')",
        "assert expressions.fault('true') is None",
        "print('cel.cel' in sys.modules, 'typer' in sys.modules, 'prompt_toolkit' in sys.modules, end=' ')",
        # An import of the whole package still gets it, with the same compiled part.
        "import cel; print(cel.compile is sys.modules['cel.cel'].compile)",
    )
    assert run(*lines) == "False True False False True"
