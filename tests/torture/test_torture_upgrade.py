"""kill -9 at random moments of `index upgrade`, while the index is served and changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from milvus_process import TOKEN
from serving import ToyCollection, service_in_thread, wait_for
from toys import make_toy, tiny_hasher, write_folder
from trials import Crashed, Lost
from upgrading import Searching, check

from hadahash import Index
from hadahash.index.engines.milvus_alias import alias_target, switch_alias
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, build_or_update

pytest.importorskip("fastapi")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and signals")

# Forks a process for each command: (action, index, run).
PROGRAM = """
import json, os, sys
import torch
torch.set_num_threads(1)
from hadahash.errors import HadaHashError
from hadahash.index.engines.milvus_alias import alias_target, switch_alias
from hadahash.model import HashModel
from hadahash.photos import BuildOptions, build_or_update
from hadahash.photos.upgrade import UpgradeOptions, discard_old, rollback, upgrade
import hadahash.data.decode, hadahash.networks

def perform(action, index, run):
    options = UpgradeOptions(device="cpu")
    if action == "upgrade":
        upgrade(index, run, options=options)
    elif action == "rollback":
        rollback(index, options=options)
    elif action == "discard":
        discard_old(index)
    else:
        build_or_update(run, index, options=BuildOptions(device="cpu"))

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            perform(*json.loads(line))
            text = "done"
        except HadaHashError as error:
            text = f"refused: {error}"
        except BaseException as error:
            text = f"crashed: {type(error).__name__}: {error}"
        os.write(1, (json.dumps({"result": text}) + "\\n").encode())
        os._exit(0)
    os.write(1, (json.dumps({"child": child}) + "\\n").encode())
    os.waitpid(child, 0)
    os.write(1, (json.dumps({"ended": True}) + "\\n").encode())
"""


class Commands:
    """Commands in processes of their own, which can be killed."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", PROGRAM]
        pipe, environment = subprocess.PIPE, os.environ | {"HADAHASH_MILVUS_TOKEN": TOKEN}
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def run(self, action: str, index: Path, run: Path, kill_after: float | None = None) -> str:
        """What the command ended with; "killed" if it did not end before that."""
        self.process.stdin.write(json.dumps([action, str(index), str(run)]) + "\n")
        self.process.stdin.flush()
        said: dict[str, object] = {}
        while "ended" not in said:
            said |= json.loads(self.process.stdout.readline())
            if kill_after is not None and "child" in said:
                time.sleep(kill_after)
                with suppress(ProcessLookupError):
                    os.kill(said["child"], signal.SIGKILL)
                kill_after = None
        result = str(said.get("result", "killed"))
        if result.startswith("crashed") or "\n" in result:
            raise Crashed(result)
        return result

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Upgraded:
    """An index that is upgraded from one model to the other, and the photos that it must have."""

    root: Path
    runs: list[Path]
    commands: Commands
    seconds: dict[str, float] = field(default_factory=dict)  # of each action, when not killed
    alias: str | None = None  # of its collection on a server

    def __post_init__(self) -> None:
        self.models = [HashModel.load(run, device="cpu") for run in self.runs]
        self.photos, self.index = self.root / "photos", self.root / "photos.index"
        self.added = 0

    def images(self) -> dict[str, bytes]:
        paths = self.photos.rglob("*.png")
        return {str(path.relative_to(self.photos)): path.read_bytes() for path in paths}

    def current(self) -> int:
        """Number of the model whose codes the index has. Its items are complete and right."""
        found, images = Index.open(self.index), self.images()
        if missing := set(images) - set(found.ids.tolist()):
            raise Lost(f"{sorted(missing)} of {len(images)}")
        names = found.ids.tolist()
        assert sorted(names) == sorted(images), "items that are not there"
        (number,) = (n for n, model in enumerate(self.models) if model.made(found.meta["model"]))
        expected = self.models[number].encode([images[name] for name in names]).packed
        assert (found.codes(found.ids).packed == expected).all(), "codes of another model"
        return number

    def run(self, action: str, moment: float | None = None) -> str:
        """Run a command; with a moment (0 to 1), kill it there."""
        target = self.runs[1 - self.model] if action == "upgrade" else self.photos
        kill = None if moment is None else moment * self.seconds.get(action, 1)
        started = time.monotonic()
        result = self.commands.run(action, self.index, target, kill)
        if kill is None:
            self.seconds[action] = time.monotonic() - started
        return result

    def add_photo(self, source: Path) -> None:
        """A photo that the next build finds."""
        self.added += 1
        shutil.copy(source, self.photos / "red" / f"added-{self.added}.png")

    def trial(self, rng, fresh: list[Path]) -> None:
        """One kill, and the remedy: the same command again."""
        self.model = before = self.current()
        has_old = (self.index / "previous.json").exists()
        action = rng.choice(["upgrade", "rollback", "discard"] if has_old else ["upgrade"])
        if rng.random() < 0.5:
            self.add_photo(fresh[self.added % len(fresh)])
            assert self.run("build") == "done"  # acknowledged: it must not be lost
        result = self.run(action, float(rng.uniform(0, 1.1)))
        killed = self.current()
        assert result in ("done", "killed"), result
        assert result == "killed" or killed == (before if action == "discard" else 1 - before)
        again = self.run(action)
        if action == "upgrade" and killed != before:
            assert "already has the codes" in again, again
        else:
            assert again == "done", again
        expected = {"upgrade": 1 - before, "rollback": 1 - killed, "discard": before}
        assert self.current() == expected[action]
        if self.alias is not None:
            live = Index.open(self.index)
            assert alias_target(live.server, self.alias) == live.settings.collection


@pytest.fixture(scope="module")
def commands():
    found = Commands()
    yield found
    found.end()


@pytest.fixture
def upgraded(saved, tmp_path, commands):
    """upgraded(engine, settings): an index of 48 photos."""

    def make(engine=None, **settings):
        shutil.copytree(saved, tmp_path / "run")
        tiny_hasher(seed=7).fit(*make_toy(64, seed=0)).save(tmp_path / "better")
        photos = write_folder(tmp_path / "photos", *make_toy(48, seed=2))
        options = BuildOptions(engine=engine, settings=settings, device="cpu")
        build_or_update(photos, run=tmp_path / "run", options=options)
        return Upgraded(tmp_path, [tmp_path / "run", tmp_path / "better"], commands)

    return make


def torture(tried, numbers, index, tmp_path):
    """Kills, while a service answers; every answer is that of one model, and none is missing."""
    fresh = sorted(write_folder(tmp_path / "fresh", *make_toy(24, seed=9)).rglob("*.png"))
    collection, images = ToyCollection(index.root), index.images()
    with service_in_thread(collection, watch_seconds=0.05, write_token=None) as (url, service):
        with Searching(url, images) as clients:
            for trial in tried.numbers(*numbers):
                with trial:
                    index.trial(trial.rng, fresh)
                    assert clients.problems == [], clients.problems[0]
            now = index.models[index.current()]
            wait_for(lambda: service.handle.current.model.id == now.id)
            count = len(clients.answers)
            wait_for(lambda: len(clients.answers) > count + 5)
        assert clients.problems == []
    check(clients.answers, index.runs, set(index.images()), index.images())
    assert index.run("discard") == "done"
    left = {path.name for path in index.index.iterdir()}
    assert not left & {"previous.json", "upgrade.json", "previous", "upgrade"}, left


def test_kills_during_upgrades(trials, upgraded, tmp_path):
    tried = trials("index", "kill -9 during upgrade, rollback and discard-old, while it is served")
    torture(tried, (1, 150), upgraded(), tmp_path)


@pytest.mark.torture
def test_kills_during_upgrades_on_milvus(trials, upgraded, tmp_path, milvus_server, monkeypatch):
    monkeypatch.setenv("HADAHASH_MILVUS_URI", milvus_server.uri)
    monkeypatch.setenv("HADAHASH_MILVUS_TOKEN", TOKEN)
    tried = trials("Milvus", "kill -9 during upgrade, rollback and discard-old, while it is served")
    index = upgraded("milvus", collection="torn")
    live, index.alias = Index.open(index.index), "album_of_torn"
    switch_alias(live.server, index.alias, "torn")
    live.settings = replace(live.settings, collection=index.alias)
    live.save(index.index)  # as an index that was built through the alias
    torture(tried, (1, 20), index, tmp_path)
    live = Index.open(index.index)
    names = live.server.call_any("list_collections")
    found = [name for name in names if "torn" in name]
    assert found == [live.settings.collection], "collections of interrupted upgrades are left"
