"""The `redfish` adapter: fabrics whose manager speaks DMTF Redfish (DSP0266)."""
