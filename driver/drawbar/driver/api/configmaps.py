"""ConfigMaps, as far as they hold parameters of classic claims and classes. Source: core `v1` ConfigMap."""

from drawbar.driver.api import meta


class ConfigMap(meta.Struct, frozen=True):
    """Named texts."""

    metadata: meta.ObjectMeta
    data: dict[str, str] = {}
