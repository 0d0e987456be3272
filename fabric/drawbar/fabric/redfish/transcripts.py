"""Masked transcripts of the exchanges with a Redfish service, for tests of an odd service.

A transcript is bounded in requests and bytes; beyond the bound nothing is kept, and `complete` is false.
"""

import base64
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import yarl

from drawbar.fabric import contract
from drawbar.fabric.redfish import masking

EXCHANGES = 2000
BYTES = 8 * 1024 * 1024
# Of an answer that is no JSON object.
TEXT_CHARS = 2048
# Others may hold secrets, such as cookies.
HEADERS = ("Content-Type", "ETag", "Location", "Retry-After", "X-Auth-Token")
_UNREADABLE = "[not readable]"

Failure = Literal["", "broken", "stall"]


class Exchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request and its answer.

    Attributes:
        method: of HTTP.
        uri: path and query.
        request: body of the request, if it had one.
        status: of the answer; 0 without one.
        headers: those of `HEADERS` in the answer.
        answer: its body.
        text: its body, if that is no JSON object.
        failure: the reason for a missing answer: a broken connection, or no answer in time.
    """

    method: str
    uri: str
    request: Any = None
    status: int = 0
    headers: dict[str, str] = {}
    answer: Any = None
    text: str = ""
    failure: Failure = ""


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The exchanges, in the order of the answers.

    Attributes:
        format: the only known format.
        complete: whether nothing was omitted.
        parameters: of the Fabric, such as its profile.
    """

    format: Literal["drawbar-redfish-transcript/1"] = "drawbar-redfish-transcript/1"
    complete: bool
    parameters: dict[str, str] = {}
    exchanges: tuple[Exchange, ...]


def parse(raw: bytes) -> Transcript:
    """Return the transcript of a file.

    Raises:
        msgspec.MsgspecError: the file holds none.
    """
    return msgspec.json.decode(raw, type=Transcript)


class Recorder:
    """A recorder of a client's exchanges, which are masked and read at the end."""

    def __init__(self, config: contract.AdapterConfig) -> None:
        self._base = yarl.URL(config.endpoint)
        self._credentials = config.credentials
        self._parameters = config.parameters
        self._exchanges: list[Exchange] = []
        self._left_bytes = BYTES
        self._complete = True

    def record_answer(
        self,
        method: str,
        url: yarl.URL,
        request: bytes | None,
        *,
        status: int,
        headers: Mapping[str, str],
        raw: bytes | bytearray,
    ) -> None:
        """Keep a request with its answer."""
        answer, text = _content(raw)
        self._keep(
            Exchange(
                method=method,
                uri=url.raw_path_qs,
                request=_content(request or b"")[0],
                status=status,
                headers={name: headers[name] for name in HEADERS if name in headers},
                answer=answer,
                text=text,
            ),
            len(raw) + len(request or b""),
        )

    def record_failure(self, method: str, url: yarl.URL, request: bytes | None, failure: Failure) -> None:
        """Keep a request without an answer."""
        body = _content(request or b"")[0]
        self._keep(
            Exchange(method=method, uri=url.raw_path_qs, request=body, failure=failure), len(request or b"")
        )

    def _keep(self, exchange: Exchange, size_bytes: int) -> None:
        self._left_bytes -= size_bytes
        self._complete = self._complete and self._left_bytes >= 0 and len(self._exchanges) < EXCHANGES
        if self._complete:
            self._exchanges.append(exchange)

    def transcript(self) -> Transcript:
        """Return the masked transcript."""
        credentials = self._credentials
        basic = base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
        masks = masking.Masks(
            dict.fromkeys((credentials.password, credentials.token, basic if credentials.username else "")),
            origin=str(self._base.origin()),
            host=self._base.host or "",
        )
        masks.collect({"UserName": credentials.username})
        for exchange in self._exchanges:
            masks.add_secret(exchange.headers.get("X-Auth-Token", ""))
            masks.collect(exchange.request)
            masks.collect(exchange.answer)
        return Transcript(
            complete=self._complete,
            parameters={name: masks.text(value) for name, value in self._parameters.items()},
            exchanges=tuple(
                msgspec.structs.replace(
                    exchange,
                    uri=masks.text(exchange.uri),
                    request=masks.body(exchange.request),
                    headers={name: masks.text(value) for name, value in exchange.headers.items()},
                    answer=masks.body(exchange.answer),
                    text=masks.text(exchange.text)[:TEXT_CHARS],
                )
                for exchange in self._exchanges
            ),
        )


def _content(raw: bytes | bytearray) -> tuple[Any, str]:
    """Return the JSON object, or else the text."""
    if not raw.strip():
        return None, ""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]), ""
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None, raw.decode(errors="replace") or _UNREADABLE
