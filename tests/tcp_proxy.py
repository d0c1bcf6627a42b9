"""A TCP proxy whose network can be cut, delayed and reset."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from urllib.parse import urlparse

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends a reset
_CHUNK = 65_536


class TcpProxy:
    """Forwards connections to a server.

    Attributes:
        uri: Address of the proxy.
        delay: Seconds that every piece of data waits, in both directions.
        cut: Nothing is forwarded and nobody is told, as if a cable was pulled out.
        silent: Only what the server says is lost: it acts, but no answer arrives.
        received: Number of bytes that clients have sent.
    """

    def __init__(self, target: str) -> None:
        """Listen on a free port; `target` is the address of the server."""
        parsed = urlparse(target)
        self._target = parsed.hostname, parsed.port
        self.delay, self.cut, self.silent, self.received = 0.0, False, False, 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Reset all connections. New ones are possible."""
        pairs, self._pairs = self._pairs, []
        for each in (one for pair in pairs for one in pair):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        """Refuse new connections and reset the others."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(
                    target=self._forward, args=(one, other, one is client), daemon=True
                ).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                time.sleep(self.delay)
                if is_request:
                    self.received += len(data)
                if not self.cut and (is_request or not self.silent):
                    sink.sendall(data)
        for each in (source, sink):
            each.close()
