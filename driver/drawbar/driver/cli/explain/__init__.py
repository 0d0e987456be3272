"""`drawbar explain`: why a device, claim, pod or node waits or fails, and the next step.

`reading` asks the API server, `plan` makes findings of the answers; they are printed as those of `drawbar doctor`.
"""
