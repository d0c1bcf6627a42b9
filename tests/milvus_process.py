"""A real Milvus server (the package `milvus`) as a child process: start, stop, kill, start again.

Several can run at a time: every port is a free one, those of etcd included, and stays the same when
the server is started again.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

TOKEN = "root:Milvus"  # the user that a new server has
FASTER = {
    "proxy.timeTickInterval": 20,  # milliseconds: a read with strong consistency waits for a tick
    "queryCoord.checkInterval": 100,  # milliseconds until a collection is loaded
    "queryCoord.distPullInterval": 100,
}
# After a kill, the next server waits until the sessions of the old one have expired (seconds). A
# server that is too slow to renew its own sessions stops itself.
RESTARTED = FASTER | {"common.session.ttl": 10}
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl
_ETCD = """name: default
data-dir: {folder}/data/etcd.data
log-outputs: [{folder}/logs/etcd.log]
listen-client-urls: http://127.0.0.1:{client}
advertise-client-urls: http://127.0.0.1:{client}
listen-peer-urls: http://127.0.0.1:{peer}
initial-advertise-peer-urls: http://127.0.0.1:{peer}
initial-cluster: default=http://127.0.0.1:{peer}
"""


def why_not() -> str | None:
    """Why no server can be started here; None if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the package milvus has a server for x86_64 Linux only"
    try:
        metadata.version("milvus")
    except metadata.PackageNotFoundError:
        return "the package milvus is not installed"
    return None


def _package() -> Any:
    """The package `milvus`, also where another module has this name."""
    path = metadata.distribution("milvus").locate_file("milvus/__init__.py")
    spec = spec_from_file_location("milvus_package", str(path))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MilvusProcess:
    """A server in a folder of its own.

    Attributes:
        uri: Its address.
        process: The child process, or None.
    """

    def __init__(
        self,
        folder: Path,
        binaries: Path | None = None,
        options: Mapping[str, int] = FASTER,
    ) -> None:
        """Write the configuration; the server is not started yet.

        Args:
            folder: An empty folder, for the data and the logs.
            binaries: Folder of binaries that another server has unpacked; unpacked by default.
            options: Settings of the server that differ from its defaults.
        """
        milvus = _package()
        self.folder, self.process = folder, None
        folder.mkdir(parents=True, exist_ok=True)
        if binaries is None:
            milvus._initialize_data_files(str(folder))
        self.binaries = binaries or folder / "bin"
        server = milvus.MilvusServer(milvus.MilvusServerConfig())
        server.set_base_dir(str(folder))
        names = [name for name in server.config_keys if name.endswith("_port")]
        *ports, client, peer, self._web = free_ports(len(names) + 3)
        for name, port in zip(names, ports, strict=True):
            server.config.set(name, port)
        server.config.set("authorization_enabled", True)
        for name, value in options.items():
            server.config.set(name, value)
        server.config.write_config()
        etcd = folder / "configs" / "etcd.yaml"
        etcd.write_text(_ETCD.format(folder=folder, client=client, peer=peer))
        written = folder / "configs" / "milvus.yaml"
        text = written.read_text()
        written.write_text(text.replace("\netcd:\n", f"\netcd:\n  config:\n    path: {etcd}\n", 1))
        self.port = server.listen_port
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self, seconds: float = 120) -> None:
        """Start the server and wait until it is ready.

        Raises:
            RuntimeError: It has stopped, or is not ready in time.
        """
        environment = os.environ | {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self._web),
            "LD_LIBRARY_PATH": str(self.binaries),
        }
        with (self.folder / "logs" / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binaries / "milvus", "run", "standalone"],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )
        end = time.monotonic() + seconds
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"Milvus did not start; see {self.folder}/logs/server.log")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/healthz", timeout=5) as page:
                return b"OK" in page.read()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a power cut of its machine would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def usage(self) -> dict[str, float]:
        """Most memory that the process has used and size of its data, in gigabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = int(status.split("VmHWM:")[1].split()[0])
        files = [each for each in (self.folder / "data").rglob("*") if each.is_file()]
        size = sum(each.stat().st_size for each in files)
        return {"peak_memory_gb": kilobytes / 1e6, "files_gb": size / 1e9}

    def pause(self) -> None:
        """Stop the process; its connections stay open (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.process.send_signal(signal.SIGCONT)


def _die_with_parent() -> None:
    """No server is left if the tests are killed."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
