"""Verdicts on the health of devices that a test changes."""

from drawbar.driver.node.health import verdicts


class Verdicts:
    """Implements `verdicts.Verdicts`: `by_key`, changed by `judge`."""

    def __init__(self, by_key=()):
        self.by_key, self.subscribers = dict(by_key), []

    def verdict(self, key):
        return self.by_key.get(key, verdicts.UNKNOWN)

    def all(self):
        return dict(self.by_key)

    def subscribe(self, changed):
        self.subscribers.append(changed)
        return lambda: self.subscribers.remove(changed)

    def judge(self, key, verdict):
        self.by_key[key] = verdict
        for changed in tuple(self.subscribers):
            changed(key)
