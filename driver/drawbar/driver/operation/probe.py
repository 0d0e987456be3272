"""`drawbar-probe`: asks the daemon of its own container for one page; for exec probes alone.

A probe is a process every few seconds on every node, and nearly all of its cost is imports: `drawbar node --check` reads
all settings first, which takes thirty times the processor time. So this imports two modules of C, nothing of Drawbar, and
finds the daemon by the variable that the daemon itself reads. The image has this file as a program: it must stay whole.
"""

import _socket
import posix
import sys

PAGES = {"ready": b"/readyz", "alive": b"/healthz"}
VARIABLE = "DRAWBAR_HTTP_ADDRESS"
TIMEOUT_SECONDS = 20.0  # The kubelet ends the probe earlier; this is for a kubelet that is gone.
ANSWER_LIMIT_BYTES = 64 * 1024
USAGE = 2


def main() -> int:
    """Return 0 if the page says yes, 1 if it says no or does not answer, 2 if the request is impossible."""
    page = PAGES.get(sys.argv[1]) if len(sys.argv) == 2 else None
    where = posix.environ.get(VARIABLE.encode(), b"").decode(errors="replace")
    unix = where.startswith("unix:")
    host, _, port = where.rpartition(":")
    if page is None or not (unix or port.isdecimal()):
        sys.stderr.write(
            f"usage: drawbar-probe ready|alive, with {VARIABLE}=unix:/path or 127.0.0.1:PORT as the daemon has it\n"
        )
        return USAGE
    try:
        answer = fetch(where.removeprefix("unix:") if unix else (host.strip("[]"), int(port)), page)
    except (OSError, OverflowError) as error:
        sys.stderr.write(f"no daemon answers at {where}: {error}\n")
        return 1
    head, _, content = answer.partition(b"\r\n\r\n")
    sys.stdout.write(content.decode(errors="replace"))
    return 0 if head.split(b" ", 2)[1:2] == [b"200"] else 1


def fetch(where: str | tuple[str, int], page: bytes, timeout_seconds: float = TIMEOUT_SECONDS) -> bytes:
    """Return the answer of the daemon at a path or address, with its head; raise OSError if there is none."""
    family = _socket.AF_UNIX if isinstance(where, str) else _socket.AF_INET
    if not isinstance(where, str) and ":" in where[0]:
        family = _socket.AF_INET6
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect(where)
        connection.sendall(b"GET " + page + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while len(answer) < ANSWER_LIMIT_BYTES and (part := connection.recv(4096)):
            answer += part
    finally:
        connection.close()
    return answer


if __name__ == "__main__":
    sys.exit(main())
