"""The start of a gRPC server, whole even if its task is cancelled."""

import asyncio

import grpc.aio


async def start(server: grpc.aio.Server) -> None:
    """Start the server. A cancellation is raised after the start, because gRPC cannot stop a server in between."""
    begun = asyncio.Task(server.start(), name="start a gRPC server")
    try:
        await asyncio.shield(begun)
    finally:
        # Done, unless this task was cancelled.
        await begun
