"""A jail for one trial, of kernel namespaces: no network but loopback, its own processes, its own file system.

The file system is built from nothing: system programs, the Python in use and the trial's folders are bound into an
empty one, which then becomes the root, and the old root is let go of. What is not bound is not hidden behind a mount
that could be taken away: it is not there. Of what is bound, the interpreter's own TrainCheck is covered. Processes
run without any capability and cannot gain one.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from traincheck.errors import TraincheckError
from traincheck.pilot import installed
from traincheck.pilot.places import Place

_START_S: Final = 20
_PROGRAMS: Final = ("unshare", "nsenter", "setpriv", "mount", "umount", "pivot_root", "bash", "env")
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc only what programs need to run: it also holds passwords, keys and the machine's name.
_ETC: Final = (
    "alternatives", "debian_version", "group", "host.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "mime.types", "nsswitch.conf", "os-release", "passwd", "protocols", "services", "ssl/certs", "terminfo",
)  # fmt: skip
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_NAMESPACES: Final = ("--mount", "--pid", "--net", "--ipc", "--uts", *(() if os.geteuid() == 0 else ("--user",)))
_AS_ROOT: Final = () if os.geteuid() == 0 else ("--map-root-user",)
"""Who is not root is root in a user namespace of its own, where the kernel allows that."""
_READ_ONLY: Final = ("guard", "package", "manual")
# What lets a process without capabilities change or look into the host all the same.
_PROC_READ_ONLY: Final = ("sys", "sysrq-trigger", "irq", "bus", "fs")
_PROC_COVERED: Final = ("kcore", "keys", "key-users", "timer_list", "sched_debug", "kmsg", "kallsyms")


@dataclass(frozen=True)
class Support:
    """Whether there can be a jail here, and why not."""

    ok: bool
    reason: str | None = None


class Jail(Place):
    """A jail whose folders lie under ``root`` on the host and under ``/mnt`` (``/tmp``, ``/var/tmp``) inside."""

    kind = "jail"

    def __init__(self, root: Path, hide: Sequence[Path] = (), tools: Sequence[Path] = ()) -> None:
        """``hide``: covered where it would be in sight. ``tools``: folders of programs to be had besides, read-only."""
        super().__init__(root)
        self._hide = tuple(hide)
        self._tools = tuple(path.resolve() for path in tools)
        self._process: subprocess.Popen[bytes] | None = None
        self._first: int | None = None

    def folders(self) -> dict[str, str]:
        """Where the trial's folders are inside."""
        near = {name: f"/mnt/{name}" for name in ("work", "home", "guard", "package", "manual", "workers", "jobs")}
        return {**near, "tmp": "/tmp", "vartmp": "/var/tmp"}

    @property
    def tools(self) -> tuple[str, ...]:
        """``bin`` folders of the tools."""
        return tuple(
            f"/mnt/tools/{number}{end}" for number in range(len(self._tools)) for end in ("/bin", "/node_modules/.bin")
        )

    def enter(self) -> list[str]:
        """``nsenter`` into the namespaces, without capabilities. Raises TraincheckError when it is not started."""
        if self._first is None:
            raise TraincheckError("the jail is not started", "start() first", exit_code=1)
        return [
            "/usr/bin/env", "-i",  # what goes in, and can be seen inside, has no variable of ours
            *_found("nsenter"), "--target", str(self._first), *_NAMESPACES, "--root",
            *_found("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs",
        ]  # fmt: skip

    def start(self) -> None:
        """Build it. Raises TraincheckError with the kernel's words when it can't be built."""
        for name in self.folders():
            (self.root / name).mkdir(parents=True, exist_ok=True)
        top = self.root / ".root"
        top.mkdir(exist_ok=True)
        process = subprocess.Popen(
            [
                *_found("unshare"), *_NAMESPACES, *_AS_ROOT, "--fork", "--kill-child",
                *_found("bash"), "-c", self._script(top),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, cwd="/",
        )  # fmt: skip
        self._process = process
        said = _first_words(process)
        if said.strip() != "up":
            self.stop()
            raise TraincheckError(
                f"a jail can't be built here: {said.strip()[-300:] or 'it said nothing'}", "sandbox = 'local'"
            )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self._first = int(children[0])

    def stop(self) -> None:
        """End it: its first process is killed, and the kernel ends every other with that one."""
        process, self._process, self._first = self._process, None, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        (self.root / ".root").rmdir()

    # -- how it is built ---------------------------------------------------------------------------------------------

    def _script(self, top: Path) -> str:
        """What the first process does before it waits for our end."""
        return "\n".join(("set -eu", f"cd {shlex.quote(str(self.root))}", *self._lines(str(top)), *_ENDING))

    def _lines(self, top: str) -> Iterator[str]:
        quoted = shlex.quote
        yield "mount --make-rprivate /"
        yield f"mount -t tmpfs -o mode=0755,size=16m none {quoted(top)}"
        seen: list[Path] = []
        for path in self._exposed():
            if any(path.is_relative_to(other) for other in seen):
                continue
            inside = f"{top}{path}"
            if path.is_symlink():
                yield f"mkdir -p {quoted(str(Path(inside).parent))}; ln -s {quoted(os.readlink(path))} {quoted(inside)}"
                continue
            seen.append(path)
            yield from _bind(str(path), inside, folder=path.is_dir(), read_only=True)
        for name in _ETC:
            path = Path("/etc") / name
            if path.exists():
                yield from _bind(str(path.resolve()), f"{top}/etc/{name}", folder=path.is_dir(), read_only=True)
        yield f"printf '127.0.0.1 localhost\\n::1 localhost\\n' > {quoted(top)}/etc/hosts"
        yield f"mkdir -p {quoted(top)}/root {quoted(top)}/run"
        for name, inside in self._folders_in_order():
            yield from _bind(str(self.root / name), top + inside, folder=True, read_only=name in _READ_ONLY)
        # Again: what was bound under a folder that came later (a Python in /tmp) is covered by it.
        for path in self._exposed():
            if any(path.is_relative_to(inside) for inside in ("/tmp", "/var/tmp", "/mnt")) and not path.is_symlink():
                yield from _bind(str(path), f"{top}{path}", folder=path.is_dir(), read_only=True)
        for number, path in enumerate(self._tools):
            yield from _bind(str(path), f"{top}/mnt/tools/{number}", folder=True, read_only=True)
        yield from _devices(top)
        yield from _kernel(top)
        yield from _remove(installed.traces(), top)
        for path in (*installed.traces(), *(path.resolve() for path in self._hide)):
            yield from _cover(path, top)
        yield "hostname localhost"
        yield "ip link set lo up 2>/dev/null || ifconfig lo up"
        yield f"cd {quoted(top)}; mkdir old; pivot_root . old; cd /; umount -l /old; rmdir /old"
        yield "mount -o remount,ro,mode=0755 /"

    def _folders_in_order(self) -> list[tuple[str, str]]:
        return sorted(self.folders().items(), key=lambda item: item[1].count("/"))

    def _exposed(self) -> list[Path]:
        """System folders and those of the Python in use, parents first."""
        pythons = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]}
        found = [Path(name) for name in _SYSTEM if Path(name).exists() or Path(name).is_symlink()]
        for path in sorted(path for path in pythons if path != Path("/")):
            if not any(path.is_relative_to(other) for other in found):
                found.append(path)
        return found


# Once it is up it waits until whoever made it is gone; bash takes in the processes that lost their parents.
_ENDING: Final = ("exec 2>/dev/null", "echo up", "while read -r _; do :; done")


def _bind(source: str, target: str, *, folder: bool, read_only: bool) -> Iterator[str]:
    source, quoted = shlex.quote(source), shlex.quote(target)
    parent = shlex.quote(str(Path(target).parent))
    yield f"mkdir -p {quoted}" if folder else f"mkdir -p {parent}; touch {quoted}"
    yield f"mount --bind {source} {quoted}"
    yield f"mount -o remount,bind,nosuid{',ro' if read_only else ''} {quoted}"


def _devices(top: str) -> Iterator[str]:
    where = shlex.quote(f"{top}/dev")
    yield f"mkdir {where}; mount -t tmpfs -o mode=0755,nosuid,size=64k none {where}"
    graphics = sorted(path.name for path in Path("/dev").glob("nvidia*") if not path.is_dir())
    for name in (*_DEVICES, *graphics):
        if Path("/dev", name).exists():
            yield f"touch {where}/{name}; mount --bind /dev/{name} {where}/{name}"
    yield f"mkdir {where}/pts {where}/shm"
    yield f"mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,nosuid,noexec none {where}/pts"
    yield f"mount -t tmpfs -o mode=1777,nosuid,nodev none {where}/shm"
    yield f"ln -s pts/ptmx {where}/ptmx; ln -s /proc/self/fd {where}/fd"
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield f"ln -s /proc/self/fd/{number} {where}/{name}"


def _kernel(top: str) -> Iterator[str]:
    proc = shlex.quote(f"{top}/proc")
    yield f"mkdir {proc}; mount -t proc -o nosuid,nodev,noexec none {proc}"
    for name in _PROC_READ_ONLY:
        here = f"{proc}/{name}"
        yield f"if [ -e {here} ]; then mount --bind {here} {here}; mount -o remount,bind,ro {here}; fi"
    for name in _PROC_COVERED:
        yield f"if [ -e {proc}/{name} ]; then mount --bind /dev/null {proc}/{name}; fi"
    sys_ = shlex.quote(f"{top}/sys")
    yield f"mkdir {sys_}; mount -t sysfs -o ro,nosuid,nodev,noexec none {sys_}"


def _remove(paths: Sequence[Path], top: str) -> Iterator[str]:
    """Have ``paths`` not be there: their folders are overlaid, read-only, with a layer that says they are deleted.

    Where the kernel has no overlays their names stay to be seen, and ``_cover`` takes the content away.
    """
    layers = shlex.quote(f"{top}/.layers")
    yield f"mkdir {layers}; mount -t tmpfs -o mode=0700,size=1m none {layers}"
    for number, parent in enumerate(sorted({path.parent for path in paths})):
        place, layer = shlex.quote(f"{top}{parent}"), f"{layers}/{number}"
        gone = " ".join(shlex.quote(path.name) for path in paths if path.parent == parent)
        deleted = f"mkdir {layer}; (cd {layer}; for name in {gone}; do mknod -m 000 $name c 0 0; done)"
        yield (
            f"if [ -d {place} ]; then {deleted};"
            f" mount -t overlay -o ro,nosuid,lowerdir={layer}:{place} none {place} 2>/dev/null || true; fi"
        )
    yield f"umount -l {layers}; rmdir {layers}"


def _cover(path: Path, top: str) -> Iterator[str]:
    """Nothing where ``path`` would be in sight: an empty folder that nobody may open, an empty file."""
    inside = shlex.quote(f"{top}{path}")
    yield (
        f"if [ -d {inside} ]; then mount -t tmpfs -o ro,mode=000,size=4k none {inside};"
        f" elif [ -e {inside} ]; then mount --bind /dev/null {inside}; fi"
    )


def _found(program: str) -> list[str]:
    return [shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin") or program]


def _first_words(process: subprocess.Popen[bytes]) -> str:
    """What it says until it is up, or has ended, or takes too long."""
    assert process.stdout is not None
    said, until = b"", time.monotonic() + _START_S
    while not said.endswith(b"up\n") and time.monotonic() < until:
        if not select.select([process.stdout], [], [], 0.2)[0]:
            continue
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            break
        said += piece
    return said.decode(errors="replace")


@cache
def available() -> Support:
    """Whether a jail can be built here, found out by building one."""
    if sys.platform != "linux":
        return Support(False, "namespaces are Linux's")
    missing = [program for program in _PROGRAMS if not Path(_found(program)[0]).is_absolute()]
    if missing:
        return Support(False, f"there is no {', '.join(missing)} (util-linux)")
    with tempfile.TemporaryDirectory() as folder:
        jail = Jail(Path(folder))
        try:
            jail.start()
            done = subprocess.run(
                [*jail.prefix(), "true"], capture_output=True, text=True, timeout=_START_S, check=False
            )
            return Support(True) if done.returncode == 0 else Support(False, done.stderr.strip() or "it runs nothing")
        except (TraincheckError, OSError, subprocess.TimeoutExpired) as error:
            return Support(False, str(error))
        finally:
            jail.stop()
