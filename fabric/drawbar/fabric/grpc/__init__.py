"""The contract as a gRPC service: a client that is an adapter, and a server for any adapter."""
