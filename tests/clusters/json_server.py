"""An HTTP server of one function, for the servers that tests play."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, ThreadingUnixStreamServer
from typing import Any

# Method, path and body → status and JSON value; or nothing: it hangs up.
Answer = Callable[[str, str, Any], "tuple[int, object] | None"]


class _OnSocket(ThreadingUnixStreamServer):
    daemon_threads = True


@contextmanager
def answering(answer: Answer, socket: str = "") -> Iterator[tuple[int, set[int]]]:
    """Listens on the Unix socket, or on a port of its own; its number, and those of the clients'
    ports so far."""
    clients: set[int] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            clients.add(self.client_address[1] if self.client_address else 0)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(self.command, self.path, json.loads(body) if body else None)
            if found is None:
                self.close_connection = True
                return
            status, value = found
            # Bytes are lines of JSON, as a stream has them.
            said = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815 - as the base class wants it

        def address_string(self) -> str:
            return "test"

        def log_message(self, *_: object) -> None:
            pass

    server: BaseServer
    if socket:
        server, port = _OnSocket(socket, Handler), 0
    else:
        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server, port = http, http.server_port
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield port, clients
        finally:
            server.shutdown()
            thread.join()
