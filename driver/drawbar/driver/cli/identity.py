"""The user of a verb, by the API server's name."""

import getpass
from contextlib import suppress

from drawbar.driver.kube import client, errors, reviews


async def user(api: client.Client) -> str:
    """Return the API server's name of the user, or the machine's name of the user if there is none."""
    with suppress(errors.KubeError):
        if name := await reviews.find_username(api):
            return name
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return "unknown"
