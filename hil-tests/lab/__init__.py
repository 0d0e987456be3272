"""The QEMU lab: virtual machines whose slots, devices and kernel are real as far as software can tell.

    async with laboratory.Lab.running(logs) as lab, lab.guest(machine.Machine(name="worker-1")) as guest:
        await guest.output("ls", "/sys/bus/pci/slots")

A guest runs Debian's kernel under software emulation. Its root is this host's own file system, read-only, with a memory
overlay: so it has this checkout's environment and there is no image to build. Nothing of it is on a network: every
channel is a UNIX socket in the lab's folder.
"""
