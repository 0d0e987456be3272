"""`make check` runs the closest tests of each changed file."""

import subprocess

import pytest
from tests import changed


def git(folder, *arguments):
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    subprocess.run(("git", *identity, *arguments), cwd=folder, check=True, capture_output=True)


@pytest.fixture
def clone(tmp_path):
    """Create a repository with a branch `main` of one commit and a checked-out branch `work`."""
    git(tmp_path, "init", "--initial-branch=main")
    for name in ("kept", "committed", "edited", "removed"):
        (tmp_path / name).write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "First")
    git(tmp_path, "switch", "-c", "work")
    return tmp_path


def test_changes_are_those_of_the_branch_and_of_the_working_tree(clone):
    (clone / "committed").write_text("two\n")
    git(clone, "commit", "-a", "-m", "Second")
    (clone / "edited").write_text("two\n")
    (clone / "removed").unlink()
    (clone / "new").write_text("one\n")
    assert changed.find_changes(clone) == ["committed", "edited", "new", "removed"]


def test_changes_of_main_after_the_branch_left_it_do_not_count(clone):
    git(clone, "switch", "main")
    (clone / "kept").write_text("two\n")
    git(clone, "commit", "-a", "-m", "Second")
    git(clone, "switch", "work")
    assert changed.find_changes(clone) == []


def test_without_main_the_changes_are_those_of_the_working_tree(clone):
    git(clone, "branch", "-D", "main")
    (clone / "edited").write_text("two\n")
    assert changed.find_changes(clone) == ["edited"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(
            "driver/drawbar/driver/kube/queue.py", ["tests/driver/kube/test_queue.py"], id="the same name"
        ),
        pytest.param(
            "driver/drawbar/driver/kube/client.py",
            ["tests/driver/kube/test_client.py", "tests/driver/kube/test_client_faults.py"],
            id="the same name and more words",
        ),
        pytest.param(
            "fabric/drawbar/fabric/grpc/server.py",
            ["tests/fabric/test_grpc_server.py"],
            id="a folder in the name",
        ),
        pytest.param(
            "driver/drawbar/driver/kube/pages.py", ["tests/driver/cli/test_list.py"], id="an import"
        ),
        pytest.param(
            "driver/drawbar/driver/kube/wire.py",
            [
                "tests/driver/kube/test_client.py",
                "tests/driver/kube/test_client_faults.py",
                "tests/driver/kube/test_queue.py",
            ],
            id="the package's folder",
        ),
        pytest.param(
            "mocks/drawbar/mocks/sysfs/aer.py",
            ["tests/mocks/test_sysfs_nodes.py"],
            id="the package in the name",
        ),
        pytest.param(
            "tests/scenes/pages.py", ["tests/driver/kube/test_queue.py"], id="a module of the tests"
        ),
        pytest.param(
            "tests/driver/cli/conftest.py", ["tests/driver/cli/test_list.py"], id="fixtures of a folder"
        ),
        pytest.param("tests/driver/cli/test_list.py", ["tests/driver/cli/test_list.py"], id="a test"),
        pytest.param("tests/driver/cli/test_removed.py", [], id="a removed test"),
        pytest.param("docs/a/try-it.md", ["tests/docs/test_documentation.py"], id="documentation"),
        pytest.param("Makefile", [], id="a file without tests"),
    ],
)
def test_the_tests_of_a_file_are_the_closest(monkeypatch, path, expected):
    texts = {
        "tests/driver/cli/test_list.py": "from drawbar.driver.kube import bodies, pages\n",
        "tests/driver/kube/test_client.py": "from drawbar.driver.kube import client\n",
        "tests/driver/kube/test_client_faults.py": "",
        "tests/driver/kube/test_queue.py": "from tests.scenes.pages import Page\n",
        "tests/fabric/test_grpc_server.py": "",
        "tests/mocks/test_sysfs_nodes.py": "",
        "tests/docs/test_documentation.py": "",
    }
    monkeypatch.setattr(changed, "_text", texts.__getitem__)
    assert changed.find_tests(path, frozenset(texts)) == expected


def test_tests_of_the_same_folder_come_first(monkeypatch):
    tests = ("tests/driver/cli/test_a.py", "tests/driver/kube/test_z.py", "tests/fabric/test_a.py")
    monkeypatch.setattr(changed, "_text", lambda _: "from drawbar.driver.kube.kinds import Kind\n")
    assert changed.find_tests("driver/drawbar/driver/kube/kinds.py", frozenset(tests)) == [
        "tests/driver/kube/test_z.py",
        "tests/driver/cli/test_a.py",
        "tests/fabric/test_a.py",
    ]


def test_this_very_file_is_the_test_of_the_changed_module():
    assert changed.find_tests("tests/changed.py", changed.list_tests()) == ["tests/test_changed.py"]
