"""An event loop whose clock jumps to the next timer once no other work is left.

Hours of deadlines, pauses and probation pass in the time of their work. All parties run in this one loop, over TCP
connections in memory (`memorynetwork`). "Nothing is ready" then means that only time can help, on fast and slow
machines alike. The loop runs a thread's work itself, at once, so that the clock waits for it.

Sockets, other processes and gRPC channels are refused: the clock would run ahead of them.
"""

import asyncio
import datetime
import functools
import random
import selectors
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, Unpack

from drawbar.mocks.testing import memorynetwork

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

# The wait in real time if there is no timer: only something outside the loop can act then.
REAL_WAIT_SECONDS = 0.05


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        "virtual time does not wait for sockets, processes or gRPC: keep what the test talks to in memory"
    )


class _JumpingSelector(selectors.BaseSelector):
    """A selector that moves its clock instead of waiting for a timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is None:
            return self._inner.select(REAL_WAIT_SECONDS)
        self.now += timeout
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; `time()` starts at 0.0 and counts virtual seconds."""

    def __init__(self, *, epoch: datetime.datetime | None = None) -> None:
        # Jitter and uids are random; the seed makes them the same in each run.
        random.seed(0)
        self._jumping = _JumpingSelector()
        self._epoch = epoch or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self._network = memorynetwork.Network(self)
        self._addresses: dict[int, tuple[str, int]] = {}
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._jumping.now

    def now(self) -> datetime.datetime:
        """Return the virtual time of day: the epoch plus the virtual seconds."""
        return self._epoch + datetime.timedelta(seconds=self._jumping.now)

    # Connections in memory.

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Serve at the address of `sock`, or of `host` and `port`, within this loop."""
        _plain(options)
        sock = options.get("sock")
        if sock is None:
            sock = socket.socket()
            if not port:
                sock.bind((host, 0))
        # A named port exists only in this loop: other processes may use the same number.
        address = (host, port) if port else sock.getsockname()[:2]
        return self._network.listen(protocol_factory, sock, address)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Remember the socket's target; `create_connection` makes the connection."""
        self._network.check(address[:2])
        self._addresses[sock.fileno()] = address[:2]

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Connect to the server at the address within this loop; return the transport and the protocol."""
        _plain(options)
        sock = options.get("sock")
        if sock is None:
            return self._network.connect(protocol_factory, (host, port))
        try:
            transport, protocol = self._network.connect(protocol_factory, self._addresses.pop(sock.fileno()))
        finally:
            sock.close()
        return transport, protocol

    def run_in_executor(
        self,
        executor: object,  # noqa: ARG002 - the base class's signature
        func: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Call the function now, because a thread would take real time; return its finished future."""
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the future raises it, as an executor's does
            done.set_exception(error)
        return done

    add_reader: Any = _refuse
    create_unix_server: Any = _refuse
    create_unix_connection: Any = _refuse
    create_datagram_endpoint: Any = _refuse
    subprocess_exec: Any = _refuse


def _plain(options: Mapping[str, Any]) -> None:
    if options.get("ssl"):
        raise RuntimeError("connections in virtual time are in memory and have no TLS")


def in_virtual_time(
    function: Callable[Parameters, Coroutine[Any, Any, Result]],
) -> Callable[Parameters, Result]:
    """Return a function that runs the coroutine function to its end in a virtual loop of its own."""

    @functools.wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(function(*args, **kwargs))

    return run
