"""What a host's kernel shows of its devices, kept in files: for bug reports, and for tests that load them again.

`recorder.record` writes a folder: snapshots of the sysfs tree (`tree`), the uevents that came meanwhile, and
what was left out and why. Nothing is written to the host's sysfs, and nothing is read there that could disturb a device
(`kinds`). `masks` replaces what identifies a single card or host.
"""
