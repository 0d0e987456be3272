import pytest

from drawbar.driver import main


@pytest.fixture
def maintenance_command(capsys):
    """Runs `drawbar maintenance` and returns its exit status, output and errors."""

    def run(*words):
        try:
            status = main.main(["maintenance", *map(str, words)])
        except SystemExit as ended:
            status = ended.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.out + printed.err
        return status, printed.out, printed.err

    return run
