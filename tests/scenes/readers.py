"""A reader of claims for clusters known to serve `resource.k8s.io/v1`; it does not query the versions."""

from drawbar.driver.node import claim_versions


def make_modern_reader(api, *, driver, node_name):
    """Return a reader for the node."""
    versions = claim_versions.Served(api)
    versions.known.set()
    versions.modern.set()
    return claim_versions.Reader(api, driver=driver, node_name=node_name, versions=versions)
