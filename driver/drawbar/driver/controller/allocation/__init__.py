"""Allocation of devices by the controller itself, at once or classic: free devices, selectors, and the match of both."""
