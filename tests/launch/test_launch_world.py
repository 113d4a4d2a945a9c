"""What launching needs of the world: every process with its session, and ports that can be bound."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from freehold.errors import PrerequisiteError
from freehold.world import LocalWorld


def test_a_child_is_listed_with_its_parent_and_session():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        (facts,) = (f for f in LocalWorld().processes() if f.pid == child.pid)
        assert facts.parent_pid == os.getpid()
        assert facts.session_id == child.pid
        assert facts.resident_bytes > 0
        assert facts.argv[0] == sys.executable
    finally:
        child.communicate(b"\n")
    assert child.pid not in [f.pid for f in LocalWorld().processes()]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_free_port_is_found_and_can_be_bound_again(host):
    port = LocalWorld().bindable_port(host, 0)
    assert port > 1023
    assert LocalWorld().bindable_port(host, port) == port


def test_a_port_that_is_listened_on_cannot_be_bound():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PrerequisiteError, match=f"cannot listen on 127.0.0.1 port {port}"):
            LocalWorld().bindable_port("127.0.0.1", port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 65536), ("127.0.0.1", -1), ("a.invalid", 0)])
def test_what_is_no_port_of_this_machine_is_told(host, port):
    with pytest.raises(PrerequisiteError) as caught:
        LocalWorld().bindable_port(host, port)
    assert caught.value.why


def test_an_ended_child_is_none_and_its_status_is_known_from_then_on(tmp_path):
    """A process with several threads is a zombie before it can be reaped; None always means that it was."""
    world = LocalWorld()
    script = (
        "import threading, time, os\n"
        "for _ in range(50): threading.Thread(target=time.sleep, args=(9,)).start()\n"
        "os._exit(4)"
    )
    for number in range(5):
        pid = world.spawn([sys.executable, "-S", "-c", script], env={}, log=tmp_path / f"{number}.log")
        while world.process(pid) is not None:
            world.sleep(0.001)
        assert world.exit_status(pid) == 4
