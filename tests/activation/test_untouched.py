"""What a program sees and shows is the same with and without collection."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.activation.watching import TRAIN, Done, collecting, environment, plain, script, watched

LOOK = """
import json, os, signal, sys, threading, builtins
def look():
    masked = sorted(int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    handlers = {int(n): str(signal.getsignal(n)) for n in signal.Signals if n not in (signal.SIGKILL, signal.SIGSTOP)}
    return dict(
        cwd=os.getcwd(), argv=sys.argv, path=sys.path, flags=str(sys.flags), options=sys._xoptions, orig=sys.orig_argv,
        warn=sys.warnoptions, executable=sys.executable, prefix=sys.prefix, masked=masked, handlers=handlers,
        environment={k: v for k, v in os.environ.items() if k not in ("TRAINCHECK_RUN", "PYTHONPATH")},
        descriptors=sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 256), umask=os.umask(0o22),
        limit=sys.getrecursionlimit(), hook=str(sys.excepthook)[:20], session=os.getsid(0), nice=os.nice(0),
        threads=[t.name for t in threading.enumerate()], main=sorted(vars(sys.modules["__main__"])),
        encoding=[sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding],
        first=os.open("/dev/null", os.O_RDONLY),
        buffering=[sys.stdout.line_buffering, sys.stderr.line_buffering], isatty=[os.isatty(n) for n in range(3)],
        builtins=len(vars(builtins)), site="sitecustomize" in sys.modules and sys.modules["sitecustomize"].__file__,
    )
"""


def _same(a: Done, b: Done) -> None:
    assert (a.code, a.out) == (b.code, b.out)
    assert a.err == b.err_of_program


def _seen(folder: Path, words: list[str], **env: str) -> tuple[dict[str, object], dict[str, object]]:
    without = json.loads(plain(folder, words, **env).fine().out)
    watch = json.loads(watched(folder, words, **env).fine().out)
    for seen in (without, watch):
        seen.pop("site")
    return without, watch


@pytest.mark.parametrize("when", ["", "import torch\n"])
@pytest.mark.parametrize(
    "flags", [[], ["-O", "-X", "dev", "-W", "ignore"], ["-P"] if sys.version_info >= (3, 11) else []]
)
def test_what_a_program_sees(tmp_path: Path, when: str, flags: list[str]) -> None:
    command = script(tmp_path, LOOK + when + "print(json.dumps(look()))\n")
    without, watch = _seen(tmp_path, [command[0], *flags, command[1], "a", "--b"])
    assert watch == without


def test_signals_that_were_ignored_stay_ignored(tmp_path: Path) -> None:
    """Under ``nohup``, and in the background of a script."""
    command = script(tmp_path, LOOK + "print(json.dumps(look()))\n")
    deaf = ["sh", "-c", "trap '' INT HUP QUIT USR1; exec \"$@\"", "sh"]
    without = json.loads(plain(tmp_path, [*deaf, *command]).fine().out)
    done = subprocess.run(
        [*deaf, *collecting(tmp_path / "run", command)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        capture_output=True,
        timeout=60,
        check=True,
    )
    watch = json.loads(done.stdout)
    assert watch["handlers"] == without["handlers"]


def test_exit_codes_where_those_of_children_are_thrown_away(tmp_path: Path) -> None:
    """The system does that while SIGCHLD is ignored."""
    command = collecting(tmp_path / "run", [sys.executable, "-c", "raise SystemExit(9)"])
    careless = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", careless, *command], env=environment(), timeout=60, check=False)
    assert done.returncode == 9


@pytest.mark.parametrize("python_path", ["lib", ":lib", "lib:", "lib::other", ""])
def test_python_path_is_kept_to_the_letter(tmp_path: Path, python_path: str) -> None:
    """An empty entry means the current folder; what is there must stay importable."""
    command = script(tmp_path, LOOK + "print(json.dumps(look()))\n", "deep/program.py")
    without, watch = _seen(tmp_path, command, PYTHONPATH=python_path)
    assert watch["path"] == without["path"]


def test_only_two_variables_differ(tmp_path: Path) -> None:
    command = ["env", "-0"]
    without = set(plain(tmp_path, command, PYTHONPATH="mine").out.split(b"\0"))
    watch = set(watched(tmp_path, command, PYTHONPATH="mine").out.split(b"\0"))
    assert {entry.partition(b"=")[0] for entry in without ^ watch} == {b"PYTHONPATH", b"TRAINCHECK_RUN"}


def test_a_module_named_like_one_of_the_standard_library(tmp_path: Path) -> None:
    """Early imports of ours would take the place of the program's own modules."""
    for name in ("json", "platform", "contextlib", "dataclasses", "hashlib", "shutil", "time", "typing"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    found = "import json, platform, contextlib, hashlib, shutil; print(json.MINE, platform.MINE, contextlib.MINE)\n"
    _same(plain(tmp_path, script(tmp_path, found)), watched(tmp_path, script(tmp_path, found)))


def test_another_sitecustomize_runs_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(
        "import sys\nprint('site', __name__, __file__, __spec__.name, sys.path[0])\nMARK = 1\n"
    )
    (tmp_path / "lib" / "usercustomize.py").write_text("print('user', __name__)\n")
    program = "import sitecustomize, sys\nprint(sitecustomize.MARK, sitecustomize is sys.modules['sitecustomize'])\n"
    command = script(tmp_path, program)
    without, watch = (run(tmp_path, command, PYTHONPATH=str(tmp_path / "lib")) for run in (plain, watched))
    assert b"site sitecustomize" in without.out
    _same(without, watch)


@pytest.mark.parametrize("fault", ["raise ValueError('mine')", "import nothing_of_the_kind", "syntax error"])
def test_another_sitecustomize_that_fails(tmp_path: Path, fault: str) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "sitecustomize.py").write_text(fault + "\n")
    command = script(tmp_path, TRAIN + "print(train())\n")
    without, watch = (run(tmp_path, command, PYTHONPATH=str(tmp_path / "lib")) for run in (plain, watched))
    _same(without, watch)
    assert len(watch.accounts) == 1


def test_standard_input_is_the_programs(tmp_path: Path) -> None:
    program = TRAIN + "import sys\ntrain()\ndata = sys.stdin.buffer.read()\nsys.stdout.buffer.write(data[::-1])\n"
    data = bytes(range(256)) * 1000
    watch = watched(tmp_path, script(tmp_path, program), stdin=data).fine()
    assert watch.out == data[::-1]


def test_descriptors_are_handed_down(tmp_path: Path) -> None:
    read, write = os.pipe()
    program = f"import os; os.write({write}, b'through')"
    command = collecting(tmp_path / "run", [sys.executable, "-c", program])
    subprocess.run(command, env=environment(), pass_fds=[write], check=True, timeout=60, capture_output=True)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "through"


ENDINGS = {
    "nothing": ("", 0, "exit", 0, None),
    "sys.exit()": ("sys.exit()", 0, "exit", 0, None),
    "sys.exit(3)": ("sys.exit(3)", 3, "exit", 3, None),
    "sys.exit(-1)": ("sys.exit(-1)", 255, "exit", 255, None),
    "message": ("sys.exit('no more \\u00e4')", 1, "exit", 1, None),
    "exception": ("def f(n):\n    return 1 / n\nf(0)", 1, "exception", 1, "ZeroDivisionError"),
    "chained": (
        "try:\n    {}['x']\nexcept KeyError as e:\n    raise RuntimeError('after') from e",
        1,
        "exception",
        1,
        "RuntimeError",
    ),
    "in torch": ("torch.ones(2) @ torch.ones(3)", 1, "exception", 1, "RuntimeError"),
    "in a module": ("torch.nn.Linear(2, 2)(torch.ones(3))", 1, "exception", 1, "RuntimeError"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", 130, "exception", 130, "KeyboardInterrupt"),
    "os._exit": ("os._exit(4)", 4, "running", None, None),
    "os.abort": ("os.abort()", 134, "running", None, None),
    "segmentation fault": ("os.kill(os.getpid(), 11)", 139, "running", None, None),
    "SIGKILL": ("os.kill(os.getpid(), 9)", 137, "running", None, None),
    "SIGTERM": ("os.kill(os.getpid(), 15)", 143, "running", None, None),
    "broken pipe": ("os.kill(os.getpid(), 13)", 0, "exit", 0, None),
    "in a thread": (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join()",
        0,
        "exit",
        0,
        None,
    ),
    "in atexit": ("import atexit\natexit.register(lambda: 1 / 0)", 0, "exit", 0, None),
    "handled": ("try:\n    1 / 0\nexcept ZeroDivisionError: pass", 0, "exit", 0, None),
    "exit in atexit": ("import atexit\natexit.register(os._exit, 9)", 9, None, None, None),
    "warning": ("import warnings\nwarnings.warn('careful')", 0, "exit", 0, None),
    "tensor warning": (
        "torch.ones(2, requires_grad=True).sum().grad_fn\ntorch.tensor(torch.ones(1))",
        0,
        "exit",
        0,
        None,
    ),
}


EVERY_TIME = (
    "nothing",
    "sys.exit(3)",
    "exception",
    "in a module",
    "KeyboardInterrupt",
    "segmentation fault",
    "SIGKILL",
)


def _addressless(text: bytes) -> bytes:
    return re.sub(rb"0x[0-9a-f]+", b"0x", text)


@pytest.mark.parametrize("ending", [e if e in EVERY_TIME else pytest.param(e, marks=pytest.mark.slow) for e in ENDINGS])
def test_endings(tmp_path: Path, ending: str) -> None:
    """Exit code, output and traceback are those of an unwatched run, and process.json says how it ended."""
    statement, code, end, status, exception = ENDINGS[ending]
    program = TRAIN + "import os, sys\nprint(train(), flush=True)\n" + statement + "\n"
    command = script(tmp_path, program)
    without, watch = plain(tmp_path, command), watched(tmp_path, command, "--scope", "full")
    assert (without.code if without.code >= 0 else 128 - without.code) == watch.code == code
    assert watch.out == without.out
    assert _addressless(watch.err_of_program) == _addressless(without.err)
    (account,) = watch.accounts
    assert account["faults"] == []
    assert watch.manifest["exit_code"] == code
    if end is not None:
        assert (account["end"], account["exit"], account["exception"]) == (end, status, exception)
    assert watch.manifest["complete"] is (account["end"] != "running")
    words = "1 process ended without a word (killed?): its trace is there up to that moment"
    assert any(words in line for line in watch.said) == (account["end"] == "running")


def test_quiet_says_nothing(tmp_path: Path) -> None:
    program = TRAIN + "import sys\ntrain()\nprint('out'); print('err', file=sys.stderr)\n"
    watch = watched(tmp_path, script(tmp_path, program), "--quiet").fine()
    assert (watch.out, watch.err) == (b"out\n", b"err\n")
    assert watch.accounts[0]["steps"] == 2


def test_one_line_at_the_start_and_one_at_the_end(tmp_path: Path) -> None:
    watch = watched(tmp_path, script(tmp_path, TRAIN + "train()\n")).fine()
    first, last = watch.err.decode().splitlines()
    assert first == f"traincheck: collecting into {watch.run} (boundary scope)"
    records = watch.accounts[0]["records"]
    assert last.startswith(f"traincheck: 1 process, 2 steps, {records:,} records, ")
    assert last.endswith(f" MB in {watch.run}")


def test_standard_error_may_be_closed(tmp_path: Path) -> None:
    command = collecting(tmp_path / "run", script(tmp_path, "print('out')\n"))
    shell = ["sh", "-c", '"$@" 2>&-', "sh", *command]
    done = subprocess.run(shell, cwd=tmp_path, env=environment(), capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"out\n")


def test_no_file_is_left_but_in_the_run(tmp_path: Path) -> None:
    script(tmp_path, "X = 1\n", "helper.py")
    program = TRAIN + "import helper, multiprocessing\ntrain()\n"
    program += "p = multiprocessing.get_context('fork').Process(target=train)\np.start(); p.join()\n"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    watch = watched(tmp_path, script(tmp_path, program), TMPDIR=str(temporary)).fine()
    top = {p.name for p in tmp_path.iterdir()}
    assert top <= {"program.py", "helper.py", "__pycache__", "tmp", "run"}
    assert {p.name for p in temporary.iterdir()} <= {f"torchinductor_{getpass.getuser()}"}  # torch's own
    assert {p.name for p in watch.run.iterdir()} == {"manifest.json", "plan.json", "processes", "reached"}
    for process in (watch.run / "processes").iterdir():
        assert {p.name for p in process.iterdir()} == {"process.json", "symbols.jsonl", "events-00000.tcev"}


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    watch = watched(tmp_path, ["no-such-program"])
    assert watch.code == 2
    assert watch.err.startswith(b"error: the command 'no-such-program' was not found\n")
    assert not watch.run.exists()


def test_a_script_that_is_no_program(tmp_path: Path) -> None:
    script(tmp_path, "print(1)\n", "train.py")
    watch = watched(tmp_path, ["./train.py"])
    assert watch.code == 2
    assert b"train.py is a file, but not a program that can be run" in watch.err
    assert b"traincheck collect -- python train.py" in watch.err


def test_an_interpreter_of_a_script_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    watch = watched(tmp_path, ["./train.sh"])
    assert watch.code == 2
    assert b"./train.sh can't be started: No such file or directory" in watch.err
    assert not watch.run.exists()
