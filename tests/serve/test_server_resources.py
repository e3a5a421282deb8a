"""The port and the directory of a server: taken before anything starts, given back at the end."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tokenpipe.errors import ConfigError, LaneBusy
from tokenpipe.serve.server_resources import server_resources, with_name
from tokenpipe.topology import Topology


def topology(runtime_dir: Path, **keys: object) -> Topology:
    values = {"name": "it", "runtime_dir": str(runtime_dir), "api": {"port": 0}, **keys}
    return Topology.from_json_dict(values)


def test_port_and_directory_are_there_and_then_gone(runtime_dir: Path) -> None:
    with server_resources(topology(runtime_dir)) as resources:
        port = resources.topology.api.port
        assert resources.endpoint == str(runtime_dir / "it")
        assert resources.topology.log_dir == runtime_dir / "it" / "logs"
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass  # a call waits, though nothing serves yet
        (runtime_dir / "it" / "logs" / "engine-0.log").touch()
    assert not list(runtime_dir.iterdir())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_logs_elsewhere_are_kept(runtime_dir: Path, tmp_path: Path) -> None:
    with server_resources(topology(runtime_dir, log_dir=str(tmp_path / "logs"))):
        (tmp_path / "logs" / "engine-0.log").touch()
    assert (tmp_path / "logs" / "engine-0.log").exists() and not list(runtime_dir.iterdir())


def test_a_name_is_for_one_server_and_a_failed_start_frees_the_port(runtime_dir: Path) -> None:
    with server_resources(topology(runtime_dir)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        second = topology(runtime_dir, api={"port": port})
        with pytest.raises(LaneBusy), server_resources(second):
            pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    third = topology(runtime_dir, log_dir="/dev/null/logs")
    with pytest.raises(ConfigError, match="log_dir"), server_resources(third):
        pass
    assert not list(runtime_dir.iterdir())


def test_a_server_without_a_name_gets_one(runtime_dir: Path) -> None:
    nameless = topology(runtime_dir, name=None)
    one, two = with_name(nameless), with_name(nameless)
    assert one.name and two.name and one.name != two.name
    assert with_name(one) == one
