"""A full disk leaves the old index or the new one. Kills: tests/torture."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys

import numpy as np
import pytest
from brute_force import LOCAL_ENGINES

from hadahash import files
from hadahash.codes import Codes
from hadahash.errors import StorageError
from hadahash.index import Index

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

BITS = 64


def state(version):
    """The items of a version: ids and codes are functions of its number."""
    rng = np.random.default_rng(version)
    ids = np.flatnonzero(rng.random(300) < 0.7)
    packed = rng.integers(0, 256, (len(ids), BITS // 8), dtype=np.uint8)
    packed[:, 0] = version % 256
    return Codes(packed, BITS, ids, content=packed[:, ::-1][:, :5].copy(), content_bits=40)


def become(index, version):
    expected = state(version)
    index.update(
        expected, np.full(len(expected), version), [f"{version}/{each}" for each in expected.ids]
    )
    index.remove(np.setdiff1d(index.ids, expected.ids))


def assert_whole(folder):
    """Check that the index is exactly one version, and return it."""
    index = Index.open(folder)
    index.verify()
    items = index.get(index.ids)
    versions = {item.labels[0] for item in items}
    assert len(versions) == 1
    version = versions.pop()
    expected = state(version)
    assert np.array_equal(index.ids, expected.ids) and np.array_equal(
        index.codes().packed, expected.packed
    )
    assert np.array_equal(index.codes().content, expected.content)
    assert all(item.path == f"{version}/{item.id}" for item in items)
    hits = index.search(expected[:3], 1)
    assert hits.ids[:, 0].tolist() == expected.ids[:3].tolist() and not hits.distances.any()
    return version


def new_index(folder, engine):
    index = Index.build(
        state(1)[:0],
        engine=engine,
        codewords=np.eye(4, BITS) - 0.5,
    )
    become(index, 1)
    index.save(folder)


def in_a_child(work):
    """Run `work` in a forked process; returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
def test_a_limit_on_the_size_of_files(tmp_path, engine):
    """Writes fail at a different point for every limit."""
    folder = tmp_path / "i"
    new_index(folder, engine)
    failures, version = 0, 1
    for limit in [
        0,
        1,
        100,
        500,
        1000,
        1500,
        1700,
        2000,
        4096,
        5000,
        8192,
        12_288,
        16_384,
        20_480,
        28_672,
        10**6,
    ]:

        def save(limit=limit, number=version + 1):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            index = Index.open(folder)
            become(index, number)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                index.save(folder)
            except StorageError as error:
                os._exit(7 if "Cannot write" in str(error) else 8)

        code = os.waitstatus_to_exitcode(os.waitpid(in_a_child(save), 0)[1])
        assert code in (0, 7)
        now = assert_whole(folder)
        assert now == version + (code == 0)
        failures, version = failures + (code == 7), now
    assert failures >= 5 and version > 1


def test_a_full_disk_at_every_write(tmp_path, monkeypatch):
    folder = tmp_path / "i"
    new_index(folder, "routed")
    flush = files.flush
    for fails_at in range(40):
        calls = []

        def full(path, fails_at=fails_at, calls=calls):
            calls.append(path)
            if len(calls) == fails_at + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flush(path)

        index = Index.open(folder)
        become(index, 2)
        with monkeypatch.context() as patch:
            patch.setattr(files, "flush", full)
            try:
                index.save(folder)
            except StorageError as error:
                assert "disk is full" in str(error)
                assert assert_whole(folder) in (
                    1,
                    2,
                )  # the last flush follows the replacement of the manifest
                continue
        break
    assert fails_at > 5 and assert_whole(folder) == 2


def test_saving_again_after_a_failure(tmp_path, monkeypatch):
    """The index in memory is unchanged, and the next save succeeds."""
    folder = tmp_path / "i"
    new_index(folder, "exact")
    index = Index.open(folder)
    become(index, 2)
    with monkeypatch.context() as patch:
        patch.setattr(
            files, "flush", lambda path: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
        )
        with pytest.raises(StorageError):
            index.save(folder)
    assert assert_whole(folder) == 1
    index.save(folder)
    assert assert_whole(folder) == 2
