"""A throw-away certificate for 127.0.0.1, so that kubectl sends its token (it does so over TLS only).

The certificate is self-signed: ECDSA on P-256 with SHA-256, valid for the names ``localhost`` and
``127.0.0.1``, and lives as long as the server.  It is written out in DER by hand because neither Python's
standard library nor the dependencies of Drawbar can make one; the key protects nothing but a test double
on the loopback interface, and must never be used for more: the arithmetic is not constant-time.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import secrets
from datetime import UTC, datetime, timedelta

# Domain parameters of P-256 (FIPS 186-5, SP 800-186 section 3.2.1.3).
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_A = _P - 3
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int] | None

_EC_PUBLIC_KEY = "1.2.840.10045.2.1"
_PRIME256V1 = "1.2.840.10045.3.1.7"
_ECDSA_SHA256 = "1.2.840.10045.4.3.2"
_COMMON_NAME = "2.5.4.3"
_BASIC_CONSTRAINTS = "2.5.29.19"
_KEY_USAGE = "2.5.29.15"
_ALT_NAME = "2.5.29.17"


def self_signed(*, days: int = 30) -> tuple[bytes, bytes]:
    """A new certificate and its private key, both PEM."""
    private = secrets.randbelow(_N - 1) + 1
    public = _multiply(private, _G)
    assert public is not None
    point = b"\x04" + public[0].to_bytes(32) + public[1].to_bytes(32)
    body = _to_be_signed(point, days)
    r, s = _sign(private, body)
    signature = _sequence(_integer(r), _integer(s))
    certificate = _sequence(body, _sequence(_oid(_ECDSA_SHA256)), _bits(signature))
    key = _sequence(
        _integer(1),
        _der(0x04, private.to_bytes(32)),
        _der(0xA0, _oid(_PRIME256V1)),
        _der(0xA1, _bits(point)),
    )
    return _pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", key)


def _to_be_signed(point: bytes, days: int) -> bytes:
    now = datetime.now(UTC)
    name = _sequence(_der(0x31, _sequence(_oid(_COMMON_NAME), _der(0x0C, b"drawbar mock apiserver"))))
    names = _der(0x82, b"localhost") + _der(0x87, ipaddress.ip_address("127.0.0.1").packed)
    extensions = _sequence(
        _sequence(_oid(_BASIC_CONSTRAINTS), _der(0x01, b"\xff"), _der(0x04, _sequence(_der(0x01, b"\xff")))),
        # digitalSignature and keyCertSign: bits 0 and 5
        _sequence(_oid(_KEY_USAGE), _der(0x01, b"\xff"), _der(0x04, _der(0x03, b"\x02\x84"))),
        _sequence(_oid(_ALT_NAME), _der(0x04, _der(0x30, names))),
    )
    return _sequence(
        _der(0xA0, _integer(2)),
        _integer(secrets.randbits(120) | 1 << 119),
        _sequence(_oid(_ECDSA_SHA256)),
        name,
        _sequence(_time(now - timedelta(hours=1)), _time(now + timedelta(days=days))),
        name,
        _sequence(_sequence(_oid(_EC_PUBLIC_KEY), _oid(_PRIME256V1)), _bits(point)),
        _der(0xA3, extensions),
    )


def _sign(private: int, body: bytes) -> tuple[int, int]:
    digest = int.from_bytes(hashlib.sha256(body).digest())
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        point = _multiply(nonce, _G)
        r = point[0] % _N if point is not None else 0
        s = pow(nonce, -1, _N) * (digest + r * private) % _N
        if r and s:
            return r, s


def _add(one: _Point, two: _Point) -> _Point:
    if one is None or two is None:
        return one or two
    if one[0] == two[0] and (one[1] + two[1]) % _P == 0:
        return None
    if one == two:
        slope = (3 * one[0] * one[0] + _A) * pow(2 * one[1], -1, _P)
    else:
        slope = (two[1] - one[1]) * pow(two[0] - one[0], -1, _P)
    x = (slope * slope - one[0] - two[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _multiply(factor: int, point: _Point) -> _Point:
    result: _Point = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, b"".join(parts))


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1))


def _bits(content: bytes) -> bytes:
    return _der(0x03, b"\0" + content)


def _time(moment: datetime) -> bytes:
    return _der(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())


def _oid(text: str) -> bytes:
    first, second, *rest = (int(part) for part in text.split("."))
    content = bytes([first * 40 + second])
    for part in rest:
        digits = [part & 0x7F]
        while part := part >> 7:
            digits.insert(0, 0x80 | (part & 0x7F))
        content += bytes(digits)
    return _der(0x06, content)


def _pem(label: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content).decode().replace("\n", "")
    wrapped = "\n".join(lines[start : start + 64] for start in range(0, len(lines), 64))
    return f"-----BEGIN {label}-----\n{wrapped}\n-----END {label}-----\n".encode()
