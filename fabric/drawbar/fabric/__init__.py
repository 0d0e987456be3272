"""Fabric managers: the contract with them, its errors, the adapters, and the conformance suite for adapters."""
