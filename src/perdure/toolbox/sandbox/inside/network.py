"""The network of a call that may reach some hosts: its own loopback, with a proxy on it that the server serves."""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct

from .kernel import write_file

_HOST, _PORT = "127.0.0.1", 3_128
_BACKLOG = 16
_BUFFER_LIMITS = {  # bytes: least, at first, at most; and how many connections wait for a listener
    "ipv4/tcp_rmem": "4096 65536 131072",
    "ipv4/tcp_wmem": "4096 16384 131072",
    "core/somaxconn": str(_BACKLOG),
}
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_INTERFACE = struct.Struct("16sh14x")

_PROXY, _DIRECT = f"http://{_HOST}:{_PORT}", "localhost,127.0.0.1,::1"
PROXY_VARIABLES = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _PROXY),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _DIRECT),
}
"""The environment variables by which programs find the proxy."""


def send_listener(channel_fd: int) -> None:
    """Make a listening socket in this process's network namespace, and give it to the server, which serves it.

    A socket stays in the namespace that it was made in, whoever holds it. Nothing of it is left here.
    """
    with socket.socket(fileno=channel_fd) as channel:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            name, flags = _INTERFACE.unpack(fcntl.ioctl(handle, _GET_FLAGS, _INTERFACE.pack(b"lo", 0)))
            fcntl.ioctl(handle, _SET_FLAGS, _INTERFACE.pack(name, flags | _UP))
        with socket.create_server((_HOST, _PORT), backlog=_BACKLOG) as listener:
            descriptors = array.array("i", [listener.fileno()])
            channel.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])


def limit_buffers(proc: int) -> None:
    """Limit the TCP buffers of this process's network namespace; the kernel's default is up to 32 MiB each.

    Where /proc/sys can't be written, as in some containers, only the fork server's measuring of sockets limits them.
    """
    for name, value in _BUFFER_LIMITS.items():
        with contextlib.suppress(OSError):
            write_file(f"sys/net/{name}", value, proc)
