"""Exact sources: whatever a workspace holds comes back bit by bit, and nothing leads out of its folder."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traincheck.pilot import sources
from traincheck.pilot.canonical import encoded
from traincheck.pilot.sources import Objects, SourceEntry, SourceError, SourceMap, capture, materialise, missing_objects

_names = st.one_of(
    st.sampled_from(
        ["a", "b", "A", ".hidden", "with space", "ümläut", "new\nline", "quote'\"", "back\\slash", "-rf", "*", "…"]
    ),
    st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
        lambda name: name not in (".", "..")
    ),
    st.binary(min_size=1, max_size=4)
    .filter(lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b".."))
    .map(os.fsdecode),
)
_leaf = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=40), st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o4755, 0o777])),
    st.tuples(st.just("link"), st.sampled_from(["a", "../..", "/etc/passwd", "nowhere", "."]), st.just(0)),
)
_tree = st.recursive(
    st.dictionaries(_names, _leaf, max_size=4),
    lambda inner: st.dictionaries(
        _names, _leaf | st.tuples(st.just("folder"), inner, st.sampled_from([0o755, 0o555, 0o700])), max_size=4
    ),
    max_leaves=8,
)


def _make(folder: Path, tree: dict[str, tuple[str, object, int]]) -> None:
    folder.mkdir(exist_ok=True)
    for name, (kind, content, mode) in tree.items():
        path = folder / name
        if kind == "file":
            path.write_bytes(content)  # type: ignore[arg-type]
            path.chmod(mode)
        elif kind == "link":
            path.symlink_to(str(content))
        else:
            _make(path, content)  # type: ignore[arg-type]
            path.chmod(mode)


def _seen(folder: Path) -> dict[bytes, tuple[object, ...]]:
    """What is there, by other means than the code under test."""
    found: dict[bytes, tuple[object, ...]] = {}
    top = os.fsencode(folder)
    for base, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = os.path.join(base, name)
            about = os.lstat(path)
            if stat.S_ISLNK(about.st_mode):
                what: tuple[object, ...] = ("link", os.readlink(path))
            elif stat.S_ISDIR(about.st_mode):
                what = ("folder", about.st_mode)
            else:
                with open(path, "rb") as file:
                    what = ("file", about.st_mode, file.read())
            found[os.path.relpath(path, top)] = what
    return found


@settings(max_examples=80, deadline=None)
@given(tree=_tree)
def test_a_source_comes_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, tuple[str, object, int]]
) -> None:
    place = tmp_path_factory.mktemp("round")
    _make(place / "work", tree)
    objects = Objects(place / "store")
    source = capture(place / "work", objects)
    name = objects.put_map(source)
    assert objects.get_map(name) == source
    assert name == source.hash
    materialise(objects.get_map(name), objects, place / "again")
    assert _seen(place / "again") == _seen(place / "work")
    assert capture(place / "again", objects) == source
    shutil.rmtree(place, ignore_errors=True)


@settings(max_examples=60, deadline=None)
@given(before=_tree, after=_tree)
def test_what_changed_is_named(
    tmp_path_factory: pytest.TempPathFactory,
    before: dict[str, tuple[str, object, int]],
    after: dict[str, tuple[str, object, int]],
) -> None:
    place = tmp_path_factory.mktemp("change")
    _make(place / "one", before)
    _make(place / "two", after)
    objects = Objects(place / "store")
    one, two = capture(place / "one", objects), capture(place / "two", objects)
    old, new = _seen(place / "one"), _seen(place / "two")
    expected = {
        os.fsdecode(path): "added" if path not in old else "deleted" if path not in new else "changed"
        for path in {*old, *new}
        if old.get(path) != new.get(path)
    }
    assert {sources.real_name(path): how for path, how in two.changed_from(one).items()} == expected
    assert (one.hash == two.hash) == (old == new)
    shutil.rmtree(place, ignore_errors=True)


def _source(tmp_path: Path, files: dict[str, str]) -> tuple[Objects, SourceMap]:
    for name, text in files.items():
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    objects = Objects(tmp_path / "store")
    return objects, capture(tmp_path / "work", objects)


def test_a_deletion_and_a_mode_are_other_sources(tmp_path: Path) -> None:
    objects, first = _source(tmp_path, {"a.py": "1", "b.py": "2"})
    (tmp_path / "work" / "b.py").unlink()
    deleted = capture(tmp_path / "work", objects)
    (tmp_path / "work" / "a.py").chmod(0o755)
    executable = capture(tmp_path / "work", objects)
    assert len({first.hash, deleted.hash, executable.hash}) == 3
    assert executable.changed_from(first) == {"a.py": "changed", "b.py": "deleted"}


def test_a_changed_or_missing_object_is_refused(tmp_path: Path) -> None:
    objects, source = _source(tmp_path, {"a.py": "1"})
    name = source.entries["a.py"].sha256
    assert name is not None
    path = tmp_path / "store" / "objects" / name[:2] / name[2:]
    path.write_text("2")
    with pytest.raises(SourceError, match="was changed"):
        materialise(source, objects, tmp_path / "again")
    path.unlink()
    assert missing_objects(source, objects) == ["a.py"]
    with pytest.raises(SourceError, match="is missing"):
        materialise(source, objects, tmp_path / "once more")


def test_a_changed_map_is_refused(tmp_path: Path) -> None:
    objects, source = _source(tmp_path, {"a.py": "1"})
    name = objects.put_map(source)
    path = tmp_path / "store" / "maps" / f"{name}.json"
    path.write_bytes(path.read_bytes().replace(b'"a.py"', b'"b.py"'))
    with pytest.raises(SourceError, match="was changed"):
        objects.get_map(name)
    path.write_text("{}")
    with pytest.raises(SourceError, match="no source map"):
        objects.get_map(name)
    path.unlink()
    with pytest.raises(SourceError, match="is missing"):
        objects.get_map(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "xyz", "A" * 64])
def test_only_hashes_name_objects(tmp_path: Path, name: str) -> None:
    objects = Objects(tmp_path)
    for ask in (objects.get, objects.get_map):
        with pytest.raises(SourceError, match="no SHA-256"):
            ask(name)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "./a", ".", "a/.", "x\0y"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    objects = Objects(tmp_path / "store")
    content = objects.put(b"")
    source = SourceMap(entries={path: SourceEntry(kind="file", mode=0o644, sha256=content, size=0)})
    with pytest.raises(SourceError, match="leads out"):
        materialise(source, objects, tmp_path / "again")
    assert not (tmp_path / "x").exists()


def test_a_file_behind_a_link_of_the_map_is_refused(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    (tmp_path / "outside").mkdir()
    content = objects.put(b"planted")
    source = SourceMap(
        entries={
            "way": SourceEntry(kind="link", mode=0, target=str(tmp_path / "outside")),
            "way/in": SourceEntry(kind="file", mode=0o644, sha256=content, size=7),
        }
    )
    with pytest.raises(SourceError, match="which is a link"):
        materialise(source, objects, tmp_path / "again")
    assert list((tmp_path / "outside").iterdir()) == []


def test_only_into_an_empty_folder(tmp_path: Path) -> None:
    objects, source = _source(tmp_path, {"a.py": "1"})
    with pytest.raises(SourceError, match="not empty"):
        materialise(source, objects, tmp_path / "work")


def test_links_are_not_followed_be_they_roots(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    objects, _ = _source(tmp_path, {"src/a.py": "1", "deep/src/a.py": "1"})
    work = tmp_path / "work"
    shutil.rmtree(work / "src")
    (work / "src").symlink_to(tmp_path / "outside")
    shutil.rmtree(work / "deep")
    (work / "deep").symlink_to(tmp_path / "outside")
    source = capture(work, objects, roots=("src", "deep/src"))
    assert {path: entry.kind for path, entry in source.entries.items()} == {"src": "link", "deep": "link"}


def test_roots_bound_what_is_captured(tmp_path: Path) -> None:
    objects, _ = _source(tmp_path, {"src/a.py": "1", "other/b.py": "2", "train.py": "3", ".codex/x": "4"})
    source = capture(tmp_path / "work", objects, roots=("src", "train.py", "gone"))
    assert list(source.entries) == ["src", "src/a.py", "train.py"]
    for root in ("..", "/etc", "src/../.."):
        with pytest.raises(SourceError, match="leads out"):
            capture(tmp_path / "work", objects, roots=(root,))


def test_an_emptied_root_is_not_a_deleted_one(tmp_path: Path) -> None:
    objects, _ = _source(tmp_path, {"src/a.py": "1"})
    (tmp_path / "work" / "src" / "a.py").unlink()
    emptied = capture(tmp_path / "work", objects, roots=("src",))
    (tmp_path / "work" / "src").rmdir()
    deleted = capture(tmp_path / "work", objects, roots=("src",))
    assert list(emptied.entries) == ["src"]
    assert list(deleted.entries) == []


def test_what_is_ignored_is_not_entered(tmp_path: Path) -> None:
    objects, _ = _source(
        tmp_path, {"a.py": "1", "__pycache__/a.pyc": "2", "pkg/b.pyc": "3", "pkg/b.py": "4", "out/x": "5"}
    )
    source = capture(tmp_path / "work", objects, ignore=("__pycache__", "*.pyc", "out"))
    assert list(source.entries) == ["a.py", "pkg", "pkg/b.py"]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    objects, _ = _source(tmp_path, {"a.py": "1"})
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "work" / "sock"))
        with pytest.raises(SourceError, match="sock is no file"):
            capture(tmp_path / "work", objects)
    (tmp_path / "work" / "sock").unlink()
    os.mkfifo(tmp_path / "work" / "pipe")
    with pytest.raises(SourceError, match="pipe is no file"):
        capture(tmp_path / "work", objects)


def test_a_file_that_is_written_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, _ = _source(tmp_path, {"a.py": "1"})
    real = os.open

    def late(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        place = real(path, flags, dir_fd=dir_fd)
        if path == "a.py":
            with (tmp_path / "work" / "a.py").open("a") as file:
                file.write("more")
        return place

    monkeypatch.setattr(sources.os, "open", late)
    with pytest.raises(SourceError, match="changed while it was read"):
        capture(tmp_path / "work", objects)


@pytest.mark.parametrize("name", ["a.py", "pkg"])
def test_what_is_swapped_for_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    objects, _ = _source(tmp_path, {"a.py": "1", "pkg/b.py": "2"})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b.py").write_text("secret")
    real = os.open

    def swapped(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if path == name:
            place = tmp_path / "work" / name
            place.rename(tmp_path / "aside")
            place.symlink_to(tmp_path / "outside")
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(sources.os, "open", swapped)
    with pytest.raises(SourceError, match="changed while it was read"):
        capture(tmp_path / "work", objects)


def test_threads_may_put_the_same_object(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    content = os.urandom(1 << 20)
    faults: list[BaseException] = []

    def put() -> None:
        try:
            for _ in range(3):
                assert objects.get(objects.put(content)) == content
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=put) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert [path.name for path in (tmp_path / "store").rglob("*.next")] == []


def test_the_hash_of_a_map_is_of_its_canonical_json(tmp_path: Path) -> None:
    objects, source = _source(tmp_path, {"a.py": "1"})
    name = objects.put_map(source)
    assert (tmp_path / "store" / "maps" / f"{name}.json").read_bytes() == encoded(
        source.model_dump(mode="json")
    ) + b"\n"
