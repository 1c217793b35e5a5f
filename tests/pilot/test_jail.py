"""The jail: what is not there can't be brought back, and what training needs works."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import traincheck
from traincheck.errors import TraincheckError
from traincheck.pilot import installed, jail, places
from traincheck.pilot.jail import Jail

from .places_support import inside, python, tiny, trial_place

pytestmark = pytest.mark.skipif(not jail.available().ok, reason=f"no jail here: {jail.available().reason}")


def test_only_the_trial_and_the_system_are_there(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        for path in (tmp_path, tiny().folder, tiny().private, Path(traincheck.__file__).parent, Path(__file__)):
            found = inside(place, "sh", "-c", f"ls -A {path} 2>/dev/null | head -n 1")
            assert found.stdout == "", f"{path} is in sight"
        assert sorted(inside(place, "ls", "/mnt").stdout.split()) == [
            "guard", "home", "jobs", "manual", "package", "work", "workers",
        ]  # fmt: skip
        assert "train.py" in inside(place, "ls").stdout
        pythons = [Path(sys.prefix), Path(sys.base_prefix)]
        for name in inside(place, "ls", "-A", "/root").stdout.split():  # a Python may live there, nothing else
            assert any(python.is_relative_to(Path("/root", name)) for python in pythons)


def test_variables_of_ours_do_not_get_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    with trial_place(tmp_path, "control") as place:
        seen = inside(place, "sh", "-c", "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
    assert "hunter2" not in seen.stdout
    assert "HOME=/mnt/home" in seen.stdout.split()


ESCAPES = {
    "umount of a cover": "umount {package}",
    "umount of everything": "umount -a -R; umount -l /proc; umount -l /usr",
    "mount": "mount -t tmpfs none /mnt/work",
    "bind mount": "mount --bind /usr /mnt/home",
    "remount": "mount -o remount,rw /usr && touch /usr/escaped",
    "nsenter into the first process": "nsenter -t 1 -m ls {private}",
    "nsenter into another": "nsenter -t $PPID -m -p ls {private}",
    "root of the first process": "ls /proc/1/root{private}",
    "working folder of the first process": "ls /proc/1/cwd/../..{private}",
    "variables of the first process": "cat /proc/1/environ",
    "chroot": "chroot /proc/1/root ls {private}",
    "pivot_root": "mkdir -p /tmp/new && pivot_root /tmp/new /tmp/new",
    "device of a disk": "mknod /tmp/disk b 254 0",
    "memory": "mknod /tmp/mem c 1 1",
    "kernel settings": "echo '|/tmp/x' > /proc/sys/kernel/core_pattern",
    "kernel requests": "echo h > /proc/sysrq-trigger",
    "a user namespace with all capabilities": "unshare -Urm sh -c 'umount {package} && ls {package}/errors.py'",
    "a user namespace and the old root": "unshare -Urm ls {private}",
    "setpriv": "setpriv --bounding-set=+sys_admin --inh-caps=+sys_admin mount -t tmpfs none /mnt/home",
    "setting the clock": "date -s 2001-01-01",
    "writing the guard": "echo > /mnt/guard/sitecustomize.py",
    "writing the manual": "echo > /mnt/manual/manual.md",
    "writing the interpreter": "touch {prefix}/escaped",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_there_is_no_way_out(tmp_path: Path, name: str) -> None:
    package = Path(traincheck.__file__).parent
    command = ESCAPES[name].format(package=package, private=tiny().private, prefix=sys.prefix)
    with trial_place(tmp_path, "control") as place:
        done = inside(place, "bash", "-c", command)
        assert done.returncode != 0, f"{command}: {done.stdout}"
        assert "oracles" not in done.stdout
        # And after all that the package is still not to be had.
        assert python(place, "import traincheck", "-I").returncode != 0


def test_processes_have_no_capability_and_get_none(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        lines = inside(place, "cat", "/proc/self/status").stdout.splitlines()
    told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert {told[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"


def test_there_is_no_network_but_loopback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, trial_place(tmp_path, "control") as place:
        port = ours.getsockname()[1]
        links = python(place, "import socket; print([name for _, name in socket.if_nameindex()])")
        assert links.stdout.strip() == "['lo']"
        reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=5)"
        assert "ConnectionRefusedError" in python(place, reach).stderr
        away = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
        assert "Network is unreachable" in python(place, away).stderr
        talk = (
            "import socket; s = socket.create_server(('localhost', 0)); c = socket.create_connection(s.getsockname());"
            " a, _ = s.accept(); c.sendall(b'hello'); print(a.recv(5).decode(), socket.gethostname())"
        )
        assert python(place, talk).stdout.split() == ["hello", "localhost"]


GLOO = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29531")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    if rank == 0:
        print("sum", value.item())
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""


def test_two_ranks_find_each_other(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        (place.root / "work" / "ranks.py").write_text(GLOO)
        done = inside(place, sys.executable, "ranks.py", timeout=120)
    assert done.stdout.split() == ["sum", "3.0"], done.stderr


def test_package_is_absent_from_a_control(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        for options in ((), ("-I",), ("-E",), ("-S",)):
            done = python(place, "import traincheck", *options)
            assert "ModuleNotFoundError" in done.stderr
        around = (
            "import sys, importlib\n"
            "sys.meta_path[:] = [one for one in sys.meta_path if 'Refuse' not in type(one).__name__]\n"
            "importlib.import_module('traincheck')"
        )
        assert "ModuleNotFoundError" in python(place, around).stderr
        named = "from importlib import metadata; print(metadata.version('traincheck'))"
        assert "PackageNotFoundError" in python(place, named).stderr
        assert inside(place, "sh", "-c", "command -v traincheck").returncode != 0
        for path in installed.traces():
            assert inside(place, "test", "-e", str(path)).returncode != 0
            assert path.name not in inside(place, "ls", "-A", str(path.parent)).stdout.split()


def test_package_is_there_in_the_other_arms_and_read_only(tmp_path: Path) -> None:
    with trial_place(tmp_path, "optional") as place:
        done = python(place, "import traincheck; print(traincheck.__file__)")
        assert done.stdout.strip() == "/mnt/package/traincheck/__init__.py"
        assert inside(place, "traincheck", "--version").stdout.startswith("traincheck ")
        assert inside(place, "sh", "-c", "echo >> /mnt/package/traincheck/__init__.py").returncode != 0
        assert python(place, "import traincheck.pilot").returncode != 0
        assert inside(place, "cat", "/mnt/manual/manual.md").stdout.startswith("# TrainCheck")


def test_its_interpreter_has_torch(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        done = python(place, "import torch; print(torch.ones(2).sum().item())")
    assert done.stdout.strip() == "2.0", done.stderr


def test_nothing_is_left_when_it_stops(tmp_path: Path) -> None:
    with trial_place(tmp_path, "control") as place:
        mark = f"sleep 98{os.getpid()}"
        subprocess.Popen(
            [*place.prefix(), "setsid", "sh", "-c", f"{mark} & {mark}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.5)
        assert _living(mark)
    until = time.monotonic() + 10
    while _living(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _living(mark)
    assert not (tmp_path / "trial" / ".root").exists()


def _living(mark: str) -> list[str]:
    found = subprocess.run(["pgrep", "-f", f"^{mark}$"], capture_output=True, text=True, check=False)
    return found.stdout.split()


def test_two_jails_do_not_see_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with trial_place(tmp_path / "a", "control") as one, trial_place(tmp_path / "b", "control") as other:
        inside(one, "sh", "-c", "echo secret > /tmp/note; echo secret > note; echo secret > ~/note")
        seen = inside(other, "sh", "-c", "ls /tmp; ls; ls ~; ps ax 2>/dev/null | wc -l; ls -d /proc/[0-9]* | wc -l")
        assert "note" not in seen.stdout
        assert int(seen.stdout.split()[-1]) < 8


def test_what_is_to_be_hidden_is_covered_where_it_would_be_in_sight(tmp_path: Path) -> None:
    root = tmp_path / "trial"
    root.mkdir()
    hide = Path(sys.prefix) / "lib"
    covered = Jail(root, hide=[hide])
    covered.start()
    try:
        done = subprocess.run([*covered.prefix(), "ls", "-A", str(hide)], capture_output=True, text=True, check=False)
    finally:
        covered.stop()
    assert done.stdout == ""


def test_tools_are_on_the_path_and_read_only(tmp_path: Path) -> None:
    tools = tmp_path / "cli"
    (tools / "bin").mkdir(parents=True)
    (tools / "bin" / "some-agent").write_text("#!/bin/sh\necho here\n")
    (tools / "bin" / "some-agent").chmod(0o755)
    with trial_place(tmp_path, "control", tools=[tools]) as place:
        assert inside(place, "some-agent").stdout == "here\n"
        assert inside(place, "sh", "-c", "echo > /mnt/tools/0/bin/some-agent").returncode != 0


def test_a_user_namespace_does_as_well_for_who_is_not_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "_NAMESPACES", ("--mount", "--pid", "--net", "--ipc", "--uts", "--user"))
    monkeypatch.setattr(jail, "_AS_ROOT", ("--map-root-user",))
    with trial_place(tmp_path, "control") as place:
        assert "train.py" in inside(place, "ls").stdout
        assert python(place, "import traincheck", "-I").returncode != 0
        for path in installed.traces():
            assert inside(place, "test", "-s", str(path)).returncode != 0
        assert inside(place, "ls", "-A", str(tmp_path)).stdout == ""
        assert inside(place, "umount", "/proc").returncode != 0
        assert inside(place, "mount", "-t", "tmpfs", "none", "/mnt/work").returncode != 0


def test_what_can_not_be_built_says_what_the_kernel_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "_devices", lambda top: iter(["mount --bind /nosuch /mnt"]))
    broken = Jail(tmp_path)
    with pytest.raises(TraincheckError, match="/nosuch"):
        broken.start()
    with pytest.raises(TraincheckError, match="not started"):
        broken.prefix()


def test_local_is_chosen_only_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jail, "available", lambda: jail.Support(False, "no namespaces"))
    chosen = places.choose("auto", tmp_path)
    assert chosen.kind == "local"
    assert "NO ISOLATION" in str(places.warning(chosen))
    assert "no namespaces" in str(places.warning(chosen))
    with pytest.raises(TraincheckError, match="no namespaces"):
        places.choose("jail", tmp_path)
    with pytest.raises(TraincheckError, match="docker"):
        places.choose("docker", tmp_path)


def test_local_ends_what_a_solver_left_running(tmp_path: Path) -> None:
    mark = f"sleep 96{os.getpid()}"
    with trial_place(tmp_path, "control", sandbox="local") as place:
        inside(place, "sh", "-c", f"setsid {mark} > /dev/null 2>&1 & sleep 0.2")
        assert _living(mark)
    time.sleep(0.3)
    assert not _living(mark)


def test_local_scrubs_variables_and_says_where_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")
    with trial_place(tmp_path, "control", sandbox="local") as place:
        seen = inside(place, "env").stdout
        assert "hunter2" not in seen
        assert inside(place, "pwd").stdout.strip() == str(place.root / "work")
        # The package is within reach there, which is why there is a warning; only the guard refuses it.
        assert "ModuleNotFoundError" in python(place, "import traincheck").stderr
