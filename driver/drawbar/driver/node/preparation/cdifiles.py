"""The CDI files of this driver's claims: one file for each claim, named after its UID."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from drawbar.cdi import errors as cdi_errors
from drawbar.cdi import files, spec
from drawbar.driver.catalogue import reasons
from drawbar.driver.node import errors

log = logging.getLogger(__name__)


class CdiFiles:
    """The files in one directory. Every method blocks.

    Args:
        directory: the directory of this driver's files.
        driver: the name of the DRA driver, which begins each file's name.

    Raises:
        errors.PrepareError: by every method, if the directory cannot be used or no file can have that UID in its name.
    """

    def __init__(self, directory: Path, driver: str) -> None:
        self._directory = directory
        self._driver = driver

    @property
    def directories(self) -> tuple[Path, ...]:
        """Return the directories that the container runtimes read, from the lowest priority to the highest."""
        return files.read_by_runtimes(self._directory)

    def check(self, uid: str) -> None:
        """Check that a file can have the UID in its name."""
        self._file(uid)

    def exists(self, uid: str) -> bool:
        """Return whether the claim has its file."""
        return self._file(uid).exists()

    def write(self, uid: str, content: spec.Spec) -> None:
        """Write the claim's file, whole or not at all."""
        with _as_prepare_error():
            files.write(self._file(uid), content)

    def remove(self, uid: str) -> None:
        """Remove the claim's file; absence is success."""
        with _as_prepare_error():
            files.remove(self._file(uid))

    def read(self) -> dict[str, tuple[str, ...]]:
        """Return the device names of each file, by claim UID; none for a file that cannot be read. Remove old drafts."""
        with _as_prepare_error():
            files.sweep(self._directory, self._driver)
            return {uid: self._names(uid) for uid in files.owners(self._directory, self._driver)}

    def restore(self, specs: Mapping[str, spec.Spec], *, unused: Iterable[str]) -> None:
        """Write these files, by claim UID, and remove the unused ones."""
        with _as_prepare_error():
            for uid, content in specs.items():
                try:
                    files.write(self._file(uid), content)
                except cdi_errors.InvalidSpec as error:
                    log.warning("cannot write the CDI file again: %s", error, extra={"uid": uid})
            for uid in unused:
                log.info("removing a CDI file that no container uses", extra={"uid": uid})
                files.remove(self._file(uid))

    def _file(self, uid: str) -> Path:
        with _as_prepare_error():
            return files.path(self._directory, self._driver, uid)

    def _names(self, uid: str) -> tuple[str, ...]:
        try:
            content = files.read(self._file(uid))
        except cdi_errors.CdiError as error:
            log.warning("a CDI file of this driver cannot be used: %s", error, extra={"uid": uid})
            return ()
        return tuple(device.name for device in content.devices) if content is not None else ()


@contextlib.contextmanager
def _as_prepare_error() -> Iterator[None]:
    try:
        yield
    except cdi_errors.CdiError as error:
        raise errors.PrepareError(str(error), reason=reasons.CDI_FILE_FAILED) from error
