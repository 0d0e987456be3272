"""`drawbar explain`: why a device, claim, pod or node waits or fails, and the next step.

`reading` asks the API server. `plan` makes findings of the answers. They are printed like those of `drawbar doctor`.
"""
