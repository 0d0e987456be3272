"""Recordings of a host's devices in files, for bug reports and for tests that load them again.

`recorder.record` writes a folder: snapshots of the sysfs tree (`tree`), the uevents of the same time, and the omissions
with their reasons. It writes nothing to the host's sysfs, and reads nothing there that could disturb a device (`kinds`).
`masks` replaces the identifiers of single cards and hosts.
"""
