"""Fabric managers: the contract with them, its errors, the adapters, and the suite that judges adapters."""
