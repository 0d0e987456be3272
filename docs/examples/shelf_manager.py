"""The fabric manager of docs/adapters.md: two disks, two hosts and three HTTP requests, on 127.0.0.1:8080."""

from typing import Any

from aiohttp import web


class Manager:
    """The manager. It breaks off the next `lost_answers` answers to changes, as a bad network does."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {
            name: {"id": name, "model": "M", "serial": f"S{name}", "host": None, "note": ""}
            for name in ("d1", "d2")
        }
        self.lost_answers = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(list(self.rows.values()))
        row = self.rows[request.path.split("/")[2]]
        body = await request.json() if request.method == "PUT" else {"host": None, "note": ""}
        if row["host"] not in {None, body["host"]} and request.method == "PUT":
            return web.Response(status=409)
        row.update(body)
        if self.lost_answers > 0 and request.transport is not None:
            self.lost_answers -= 1
            request.transport.abort()
        return web.Response(status=204)


def main() -> None:
    """Serve until Ctrl-C."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Manager().handle)
    web.run_app(app, host="127.0.0.1", port=8080)


if __name__ == "__main__":
    main()
