"""`drawbar maintenance`: no further claims for devices, and no further devices for nodes, by Maintenances.

`plan` decides the entries of each Fabric and their consequences. `execution` writes them and waits until they hold.
"""
