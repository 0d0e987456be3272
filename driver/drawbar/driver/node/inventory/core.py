"""What the PCI core itself puts into every function's directory: nothing that a driver made."""

_FILES = """
aer_dev_correctable aer_dev_fatal aer_dev_nonfatal aer_rootport_total_err_cor aer_rootport_total_err_fatal
aer_rootport_total_err_nonfatal ari_enabled boot_vga broken_parity_status class config consistent_dma_mask_bits
current_link_speed current_link_width d3cold_allowed device devspec dma_mask_bits driver driver_override enable
firmware_node index iommu iommu_group irq label local_cpulist local_cpus max_link_speed max_link_width modalias msi_bus
numa_node physfn power_state remove rescan reset reset_method reset_subordinate resource resource0 resource0_wc
resource1 resource2 resource2_wc resource3 resource4 resource4_wc resource5 revision rom secondary_bus_number
serial_number sriov_drivers_autoprobe sriov_numvfs sriov_offset sriov_stride sriov_totalvfs sriov_vf_device
sriov_vf_total_msix subordinate_bus_number subsystem subsystem_device subsystem_vendor uevent vendor vpd
"""
_FOLDERS = "link msi_irqs pci_bus pools power wakeup"

ENTRIES = frozenset(_FILES.split()) | frozenset(_FOLDERS.split())
"""Names that need no second look (drivers/pci/pci-sysfs.c, pcie/aer.c, pcie/aspm.c, iov.c; links among them)."""
