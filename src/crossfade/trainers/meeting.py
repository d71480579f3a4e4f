"""Hosts meet before they begin: each says who it is and what it is about to do, and goes on when all have come.

`jax.distributed` ends the process where a host is missing, and waits for ever where two hosts run different programs.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import UsageError

T = TypeVar("T")
Facts = Mapping[str, str]
"""What must be the same on all hosts, by name."""


def meet(address: str, port: int, count: int, number: int, facts: Facts, *, seconds: float = 120.0) -> None:
    """Waits until `count` hosts have come to `address:port`, where host 0 listens; UsageError if they disagree."""
    deadline = time.monotonic() + seconds
    if number == 0:
        _receive(port, count, facts, deadline)
    else:
        _call(address, port, number, facts, deadline)


def _receive(port: int, count: int, facts: Facts, deadline: float) -> None:
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise UsageError(f"port {port}: cannot listen there ({error.strerror}). Name a free port.") from error
    come: dict[int, socket.socket] = {}
    with listener:
        try:
            while len(come) < count - 1:
                caller = _waiting(listener.accept, listener, deadline)
                if caller is None:
                    missing = ", ".join(str(i) for i in range(1, count) if i not in come)
                    raise UsageError(f"host {missing} has not come. Start the same command there with its --host.")
                _admit(caller[0], come, count, facts)
            for one in come.values():
                one.sendall(b"\n")
        finally:
            for one in come.values():
                one.close()


def _admit(caller: socket.socket, come: dict[int, socket.socket], count: int, facts: Facts) -> None:
    """Reads who calls. A host that cannot take part is told why, and so is the user here."""
    caller.settimeout(10)
    try:
        said = json.loads(caller.makefile().readline())
        number, theirs = int(said["host"]), dict(said["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        caller.close()  # somebody else's call: no host
        return
    problem = ""
    if not 0 < number < count or number in come:
        problem = f"host {number} came, of hosts 0 to {count - 1}, each of which may come once. Give each its --host."
    elif differs := [name for name in {**facts, **theirs} if facts.get(name) != theirs.get(name)]:
        problem = "; ".join(
            f"{name}: expected {facts.get(name)} as on host 0, got {theirs.get(name)} on host {number}"
            for name in differs
        )
        problem += ". Start the same command everywhere."
    if not problem:
        come[number] = caller
        return
    for one in (caller, *come.values()):
        one.sendall(problem.encode() + b"\n")
        one.close()
    raise UsageError(problem)


def _call(address: str, port: int, number: int, facts: Facts, deadline: float) -> None:
    place = f"{address}:{port}"
    while True:
        try:
            line = socket.create_connection((address, port), timeout=5)
            break
        except OSError as error:  # host 0 may come later
            if time.monotonic() > deadline or isinstance(error, socket.gaierror):
                raise UsageError(
                    f"--coordinator {place}: nobody answers there ({error.strerror}). Start --host 0 at that address."
                ) from error
            time.sleep(0.2)
    with line:
        line.sendall(json.dumps({"host": number, "facts": dict(facts)}).encode() + b"\n")
        answer = _waiting(line.makefile().readline, line, deadline)
    if answer is None or not answer.endswith("\n"):
        raise UsageError(f"--coordinator {place}: host 0 has gone, or other hosts have not come.")
    if problem := answer.strip():
        raise UsageError(problem)


def _waiting(wait: Callable[[], T], on: socket.socket, deadline: float) -> T | None:
    """What `wait` gives, or None when the time is up."""
    on.settimeout(max(deadline - time.monotonic(), 0.01))
    try:
        return wait()
    except TimeoutError:
        return None
