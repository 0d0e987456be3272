"""Allocation of devices by the controller itself, immediate or classic: free devices, selectors, and their match."""
