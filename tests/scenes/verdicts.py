"""Verdicts on the health of devices that a test changes."""

from drawbar.driver.node.health import verdicts


class Verdicts:
    """Implements `verdicts.Verdicts`: `known` by key, changed by `judge`."""

    def __init__(self, known=()):
        self.known, self.subscribers = dict(known), []

    def of(self, key):
        return self.known.get(key, verdicts.UNKNOWN)

    def all(self):
        return dict(self.known)

    def subscribe(self, changed):
        self.subscribers.append(changed)
        return lambda: self.subscribers.remove(changed)

    def judge(self, key, verdict):
        self.known[key] = verdict
        for changed in tuple(self.subscribers):
            changed(key)
