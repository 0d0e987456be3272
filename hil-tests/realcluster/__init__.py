"""Real Kubernetes components on this machine, from their binaries: a control plane and kubelets on loopback.

binaries        the programs of one release: found, named where missing, their release detected
programs        pure: the command line and the configuration of each component
processes       one component as a process: start, stop, kill, wait
control_plane   etcd, API server, controller manager and scheduler together
kubelets        a kubelet on a container-runtime double, or on a runtime that runs already
installation    Drawbar on it, every daemon a process, over a simulated fabric
accidents       pure: what is killed when, by a seed, and what the fabric's journal shows afterwards
accident_stage  the rounds of accidents
images          archives of container images, made here
container_node  a node with containerd and a kubelet, in namespaces of its own
chart_stage     the chart by Helm's engine on such a node
guest_stage     a node in a virtual machine of the lab, whose kernel hot-plugs what pods get
stages          what `make kubernetes` runs, in order
"""
