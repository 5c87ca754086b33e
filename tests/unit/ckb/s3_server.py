"""An S3-compatible server for the tests: moto's, on a free port of this machine, which it prints.

python s3_server.py [LOSE]     the reply to every LOSE-th PUT is lost: it is carried out and answered with status 500

It serves one request at a time: moto looks whether a key exists and writes it in two steps, and S3 does both in one.
"""

import sys
from collections.abc import Iterable
from itertools import count
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        pass


class Lossy:
    """Around the server: loses replies."""

    def __init__(self, app: Any, every: int):
        self._app, self._every, self._puts = app, every, count(1)

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        reply: list[Any] = []
        body = b"".join(self._app(environ, lambda *head: reply.extend(head[:2])))
        if self._every and environ["REQUEST_METHOD"] == "PUT" and next(self._puts) % self._every == 0:
            start("500 Internal Server Error", [("Content-Length", "0")])
            return []
        start(*reply)
        return [body]


if __name__ == "__main__":
    lose = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    app = Lossy(DomainDispatcherApplication(create_backend_app), lose)
    server = make_server("127.0.0.1", 0, app, threaded=False, request_handler=Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()
