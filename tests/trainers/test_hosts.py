"""Several hosts in one run: processes on this machine that meet by a port of it."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from crossfade.config import apply
from crossfade.errors import UsageError
from crossfade.registry import SYSTEMS, find
from crossfade.run.settings import RunConfig
from crossfade.trainers.hosts_jax import Hosts
from crossfade.trainers.meeting import meet

TOYS = Path(__file__).parents[1] / "systems"
PACE = ("log_every=4", "checkpoint_every=4", "eval_every=0", "dtype=float64", "mode=jax_full", "devices=2")
SHARED = ("toy_point:RECORD", *(name for name in SYSTEMS if name != "offline"))  # which has devices=1


@pytest.fixture
def port() -> int:
    with socket.create_server(("", 0)) as free:
        return free.getsockname()[1]


# Meeting


def all_meet(port, hosts, *, seconds=5.0):
    """What `meet` says on each host of [(number, facts), ...]; None where it goes on."""
    said = {}

    def one(place, number, facts):
        try:
            meet("127.0.0.1", port, len(hosts), number, facts, seconds=seconds)
            said[place] = None
        except UsageError as error:
            said[place] = str(error)

    threads = [threading.Thread(target=one, args=(i, *host)) for i, host in enumerate(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [said[i] for i in range(len(hosts))]


def called(port: int) -> socket.socket:
    """A line to a host that is about to listen."""
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1)
        except OSError:
            time.sleep(0.01)
    raise AssertionError("nobody listens")


def test_hosts_that_agree_go_on(port):
    assert all_meet(port, [(2, {"seed": "0"}), (0, {"seed": "0"}), (1, {"seed": "0"})]) == [None, None, None]


def test_a_host_with_other_settings_is_refused_on_both_sides(port):
    said = all_meet(port, [(0, {"seed": "0"}), (1, {"seed": "1"})])
    assert said[0] == said[1] == "seed: expected 0 as on host 0, got 1 on host 1. Start the same command everywhere."


def test_a_host_may_come_once(port):
    said = all_meet(port, [(0, {}), (1, {}), (1, {})])
    assert "host 1 came" in said[0] and [*said[1:]].count(said[0]) == 2


def test_a_host_that_does_not_come_is_named(port):
    with pytest.raises(UsageError, match="host 1, 2 has not come"):
        meet("127.0.0.1", port, 3, 0, {}, seconds=0.1)
    with pytest.raises(UsageError, match="nobody answers there"):
        meet("127.0.0.1", port, 2, 1, {}, seconds=0.1)


def test_a_port_in_use_is_told(port):
    with socket.create_server(("", port)), pytest.raises(UsageError, match="Name a free port"):
        meet("127.0.0.1", port, 2, 0, {}, seconds=1.0)


def test_calls_of_strangers_are_passed_over(port):
    first = threading.Thread(target=meet, args=("127.0.0.1", port, 2, 0, {}))
    first.start()
    for call in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b""):
        with called(port) as line:
            line.sendall(call)
    meet("127.0.0.1", port, 2, 1, {})
    first.join()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("10.0.0.1", 2, 0), "expected ADDRESS:PORT"),
        (("10.0.0.1:99999", 2, 0), "expected ADDRESS:PORT"),
        (("10.0.0.1:7000", 1, 0), "--hosts: expected at least 2"),
        (("10.0.0.1:7000", 2, 2), "--host: expected 0 to 1"),
    ],
)
def test_wrong_hosts_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        Hosts(*given)


@pytest.mark.parametrize("words", [("mode=torch",), ("mode=jax_full", "devices=3")])
def test_devices_are_shared_evenly_and_in_jax_full_alone(words):
    with pytest.raises(UsageError, match="expected mode=jax_full and devices= a multiple of 2"):
        Hosts("127.0.0.1:7000", 2, 0).join(apply(RunConfig(), words))


# Training


def command(*words: str) -> list[str]:
    run = f"import sys; sys.path.insert(0, {str(TOYS)!r}); from crossfade.cli import main; sys.exit(main())"
    return [sys.executable, "-c", run, *words]


def on_one(*words: str) -> None:
    subprocess.run(command("train", *words, "--quiet"), check=True, capture_output=True, timeout=300)


def on_two(port: int, *words: str) -> list[subprocess.Popen]:
    hosts = ("--hosts", "2", "--coordinator", f"127.0.0.1:{port}")
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return [subprocess.Popen(command("train", *words, *hosts, "--host", str(i)), **pipe) for i in range(2)]


def ends_well(hosts: list[subprocess.Popen]) -> list[str]:
    said = [host.communicate(timeout=300)[0].decode() for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], said
    return said


def the_run(folder: Path) -> Path:
    [run] = folder.glob("*/*")
    return run


def learned(folder: Path) -> tuple[list[dict], bytes]:
    """The figures and parameters of the one run in a folder, without times, and evaluated at its end alone."""
    run = the_run(folder)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    left_out = [("wall", "time/", "eval/")] * (len(rows) - 1) + [("wall", "time/")]
    figures = [{k: v for k, v in row.items() if not k.startswith(out)} for row, out in zip(rows, left_out, strict=True)]
    return figures, (run / "checkpoints" / f"{figures[-1]['step']:010d}" / "weights.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("system", SHARED)
def test_two_hosts_learn_what_two_devices_of_one_learn(system, port, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    words = (system, *find(system).tiny, *PACE)
    on_one(*words, "--runs-dir", str(tmp_path / "one"))
    said = ends_well(on_two(port, *words, "--runs-dir", str(tmp_path / "two")))
    assert "run: kept by host 0" in said[1]
    assert learned(tmp_path / "one") == learned(tmp_path / "two")


@pytest.mark.slow
def test_ctrl_c_on_one_host_stops_all_and_one_host_goes_on(port, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    words = (*(word for word in find("toy_point:RECORD").tiny if not word.startswith("steps=")), *PACE, "schedule=8")
    hosts = on_two(port, "toy_point:RECORD", *words, "steps=1000000", "--runs-dir", str(tmp_path / "two"))
    while not list((tmp_path / "two").glob("*/*/checkpoints/*/weights.safetensors")):
        time.sleep(0.1)
        assert hosts[0].poll() is None, hosts[0].communicate()
    hosts[1].send_signal(signal.SIGINT)
    ends_well(hosts)
    more = f"steps={learned(tmp_path / 'two')[0][-1]['step'] + 8}"
    on_one("--resume", str(the_run(tmp_path / "two")), more)
    on_one("toy_point:RECORD", *words, more, "--runs-dir", str(tmp_path / "one"))
    assert learned(tmp_path / "one") == learned(tmp_path / "two")


@pytest.mark.slow
def test_a_run_of_one_host_goes_on_with_two(port, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    words = (*(word for word in find("toy_point:RECORD").tiny if not word.startswith("steps=")), *PACE, "schedule=8")
    on_one("toy_point:RECORD", *words, "steps=8", "--runs-dir", str(tmp_path / "one"))
    on_one("toy_point:RECORD", *words, "steps=4", "--runs-dir", str(tmp_path / "two"))
    ends_well(on_two(port, "--resume", str(the_run(tmp_path / "two")), "steps=8"))
    assert learned(tmp_path / "one") == learned(tmp_path / "two")
