"""Horovod's own rendezvous server, in which its Gloo ranks find each other: ``horovod_rendezvous.py PORT ADDRESS``.

Run by the user's Python on the leader as a program of its own, never imported by musterpoint. It serves until it is
killed: the supervisor ends it when every rank has ended. Classes are those of Horovod 0.28, which ``horovodrun`` uses.
"""

from __future__ import annotations

import errno
import socketserver
import sys


def main() -> None:
    port, address = int(sys.argv[1]), sys.argv[2]
    try:
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        sys.exit(
            f"Horovod's rendezvous server can't start: {sys.executable} can't import horovod.runner ({error}); install "
            "Horovod for this Python with all that it needs, or set HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT to a server "
            "of yours"
        )

    class Server(RendezvousHTTPServer):  # type: ignore[misc,unused-ignore]
        request_queue_size = 1024  # Python's 5 would let the ranks of large jobs wait a second for each connection

        def server_bind(self) -> None:
            socketserver.TCPServer.server_bind(self)  # without a look-up of the address's name, which may take seconds

    try:
        try:
            server = Server((address, port), RendezvousHandler, 0)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            server = Server(("", port), RendezvousHandler, 0)  # the address is translated to this host, not its own
    except OSError as error:
        sys.exit(f"Horovod's rendezvous server can't listen on {address}:{port}: {error.strerror}")
    server.serve_forever()


if __name__ == "__main__":
    main()
