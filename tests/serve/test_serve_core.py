"""The service without HTTP: settings, names, batches, decoder processes, map."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_images import encode, picture
from serving import wait_for
from toys import one_line

from hadahash.codes import Codes, pack
from hadahash.data.appearance import appearance_bits
from hadahash.data.images import open_image, open_reduced
from hadahash.data.preprocess import Preprocess
from hadahash.data.squares import shrink_to_square
from hadahash.errors import StorageError, UsageError
from hadahash.queries import Queries
from hadahash.serve.core import decode_pool
from hadahash.serve.core.batcher import Batcher
from hadahash.serve.core.collection import Collection, resolve_config
from hadahash.serve.core.decode_pool import DecodePool
from hadahash.serve.core.limits import Limit, Turns, client_name
from hadahash.serve.core.names import from_json, parse_id, to_json
from hadahash.serve.core.projection import project
from hadahash.serve.core.query import parse_values, to_halves, values_text
from hadahash.serve.core.search import SearchJob, run_jobs
from hadahash.serve.problem import Problem
from hadahash.serve.settings import ServeSettings

TOKEN = "a-token-long-enough"
PREPROCESS = Preprocess(side=20)
IMAGE = encode(picture(), "PNG")


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_token(host):
    assert ServeSettings(host=host).read_token is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_other_addresses_need_a_read_token(host):
    with pytest.raises(UsageError, match="HADAHASH_READ_TOKEN"):
        ServeSettings(host=host)
    with pytest.raises(UsageError, match="read token is required"):
        ServeSettings(host=host, write_token=TOKEN)
    assert ServeSettings(host=host, read_token=TOKEN).host == host


@pytest.mark.parametrize(
    "settings",
    [
        {"read_token": "short"},
        {"write_token": "ä" * 20},
        {"read_token": TOKEN, "write_token": TOKEN},
        {"port": 70_000},
        {"queue": 0},
        {"max_bytes": -1},
    ],
)
def test_invalid_settings_are_refused_in_one_line(settings):
    with pytest.raises(UsageError) as caught:
        ServeSettings(**settings)
    one_line(caught.value)


def test_decoder_processes_follow_the_usable_cores(monkeypatch):
    monkeypatch.setattr("hadahash.native.usable_cores", lambda: 1)
    assert ServeSettings().upload_decoders == 2 and ServeSettings().thumbnail_decoders == 1
    monkeypatch.setattr("hadahash.native.usable_cores", lambda: 8)
    assert ServeSettings().upload_decoders == 8 and ServeSettings().thumbnail_decoders == 4
    assert ServeSettings(decode_workers=3).upload_decoders == 3


def test_every_limit_has_a_help_text():
    from dataclasses import fields

    assert all(field.metadata["help"].endswith(".") for field in fields(ServeSettings))


# ---- the collection --------------------------------------------------------------------------------------------------


def test_resolve_config_names_what_is_missing(toy_collection):
    index = toy_collection.root / "photos.index"
    with pytest.raises(UsageError, match="--run"):
        resolve_config(index)
    with pytest.raises(UsageError, match="--images"):
        resolve_config(index, toy_collection.root / "run", [toy_collection.root / "nowhere"])


def test_an_index_names_its_model_and_its_images(collection_copy):
    """As `hadahash index build` writes it; its paths are absolute, and may be those of another machine."""
    photos, index = collection_copy.root / "photos", collection_copy.index
    index.meta |= {"run": str(collection_copy.root / "run"), "images": str(photos)}
    paths = [str(photos / name) for name in index.ids[:-1]] + ["/elsewhere/photos/x.png"]
    index.update(index.codes(), paths=paths)
    index.save(collection_copy.root / "photos.index")
    config = resolve_config(collection_copy.root / "photos.index")
    assert config.run is None and config.images == (photos,)
    collection = Collection.open(config, device="cpu")
    assert all(collection.image_path(item) == photos / item.id for item in index.get(index.ids))


def test_lookups_skip_items_that_were_removed(toy_collection):
    collection = Collection(toy_collection.index, SimpleNamespace(), [])
    known, gone = toy_collection.index.ids[:2].tolist(), "removed.png"
    assert list(collection.lookup([*known, gone])) == known
    assert collection.lookup([gone]) == {} and collection.lookup([]) == {}


def test_a_search_is_repeated_if_a_found_item_is_removed_meanwhile(toy_collection):
    index = toy_collection.index
    real, failures = index.neighbors, [UsageError("gone"), UsageError("gone")]

    def neighbors(*arguments, **options):
        if failures:
            raise failures.pop()
        return real(*arguments, **options)

    index.neighbors = neighbors
    (found,) = run_jobs([job_of(Collection(index, SimpleNamespace(), []), k=3)])
    assert [each.distance for each in found] == sorted(each.distance for each in found)
    assert len(found) == 3 and not failures


# ---- names -----------------------------------------------------------------------------------------------------------


@given(
    st.text(st.characters(codec=None, exclude_categories=()) | st.sampled_from("\ufffdDE89\udce9"))
)
def test_names_survive_json(name):
    text = to_json(name)
    assert from_json(text) == name
    assert text.encode("utf-8").decode("utf-8") == text
    assert to_json("straße/100%.png") == "straße/100%.png", "ordinary names do not change"


@pytest.mark.parametrize(
    ("value", "id_type", "expected"),
    [
        ("77", int, 77),
        (77, int, 77),
        ("-5", int, -5),
        (str(2**63 - 1), int, 2**63 - 1),
        (str(2**63), int, None),
        ("9" * 200, int, None),
        (" 77 ", int, None),
        ("1_0", int, None),
        ("\uff11\uff12\uff13", int, None),
        ("077", int, 77),
        ("", int, None),
        (77, str, "77"),
        ("x", str, "x"),
        (7, None, 7),
        ("7", None, "7"),
    ],
)
def test_ids_are_parsed_strictly(value, id_type, expected):
    assert parse_id(value, id_type) == expected


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_no_more_requests_are_admitted_than_allowed():
    limit = Limit(1)
    with limit.admit():
        with pytest.raises(Problem) as caught, limit.admit():
            pass
        assert caught.value.status == 503 and caught.value.headers == {"Retry-After": "1"}
    with pytest.raises(ZeroDivisionError), limit.admit():
        raise ZeroDivisionError
    assert limit.in_use == 0
    with limit.admit():
        assert limit.in_use == 1


def test_one_client_can_hold_a_share_of_the_slots():
    limit = Limit(8, 0.25)
    with limit.admit("a"), limit.admit("a"), limit.admit("b"):
        with pytest.raises(Problem, match="this client"), limit.admit("a"):
            pass
        with limit.admit("b"):
            assert limit.in_use == 4
    assert limit.in_use == 0 and not limit._held, "no client is remembered"
    assert Limit(2, 0.25)._per_client == 1


def test_programs_of_this_machine_are_told_apart_by_their_connections():
    assert client_name(("127.0.0.1", 1)) != client_name(("127.0.0.1", 2))
    assert client_name(("192.0.2.1", 1)) == client_name(("192.0.2.1", 2))


def test_clients_take_turns():
    async def run():
        turns, served = Turns(["worker"]), []

        async def work(client):
            worker = await turns.get(client)
            served.append(client)
            await asyncio.sleep(0)
            turns.put(worker)

        heavy = [asyncio.create_task(work("heavy")) for _ in range(20)]
        await asyncio.sleep(0)
        others = [asyncio.create_task(work(name)) for name in ("one", "two")]
        await asyncio.sleep(0)
        heavy[5].cancel()
        await asyncio.gather(*heavy, *others, return_exceptions=True)
        return served, turns

    served, turns = asyncio.run(run())
    assert len(served) == 21 and max(map(served.index, ("one", "two"))) < 6
    assert list(turns.free) == ["worker"] and not turns._waiting


def test_a_worker_of_a_client_that_left_goes_to_the_next():
    async def run():
        turns = Turns(["worker"])
        await turns.get()
        gone = asyncio.create_task(turns.get("a"))
        await asyncio.sleep(0)
        turns.put("worker")
        gone.cancel()  # after it got the worker, before it could use it
        await asyncio.gather(gone, return_exceptions=True)
        return await asyncio.wait_for(turns.get("b"), 10)

    assert asyncio.run(run()) == "worker"


def test_jobs_that_wait_run_together():
    sizes, first_runs, go_on = [], threading.Event(), threading.Event()

    def work(jobs):
        first_runs.set()
        assert go_on.wait(30)
        return [job * 2 for job in jobs]

    async def submit_all():
        batcher = Batcher(work, max_batch=8, on_batch=sizes.append)
        first = asyncio.create_task(batcher.submit(0))
        await asyncio.to_thread(first_runs.wait, 30)
        rest = [asyncio.create_task(batcher.submit(number)) for number in range(1, 20)]
        await asyncio.sleep(0)  # all of them are submitted
        go_on.set()
        return await asyncio.gather(first, *rest)

    assert asyncio.run(submit_all()) == [2 * number for number in range(20)]
    assert sizes == [1, 8, 8, 3], "the first does not wait for others, the others run together"


def test_an_error_reaches_the_callers_of_its_batch_only():
    def work(jobs):
        if "bad" in jobs:
            raise UsageError("bad")
        return jobs

    async def submit_all():
        batcher = Batcher(work, max_batch=8, on_batch=lambda size: None)
        failed = await asyncio.gather(
            batcher.submit("bad"), batcher.submit("beside it"), return_exceptions=True
        )
        gone = asyncio.create_task(batcher.submit("gone"))
        await asyncio.sleep(0)
        gone.cancel()
        return failed, await batcher.submit("good")

    (one, two), good = asyncio.run(submit_all())
    assert isinstance(one, UsageError) and isinstance(two, UsageError) and good == "good"


def job_of(collection, k, labels=None, *, rank="hamming", weight=None, row=0):
    query = Queries.from_codes(collection.index.codes()[[row]])
    return SearchJob(collection, query, k, None, labels, rank, weight)


def test_an_error_of_one_filter_does_not_reach_other_searches(toy_collection):
    index = toy_collection.index
    real = index.neighbors

    def neighbors(queries, k, *, labels, **options):
        if labels == ("broken",):
            raise StorageError("broken")
        return real(queries, k, labels=labels, **options)

    index.neighbors = neighbors
    collection = Collection(index, SimpleNamespace(), [])
    requests = ((3, None), (2, ("broken",)), (5, None))
    one, broken, other = run_jobs([job_of(collection, k, labels) for k, labels in requests])
    assert isinstance(broken, StorageError) and len(one) == 3 and len(other) == 5
    assert [each.id for each in other[:3]] == [each.id for each in one]


class OtherIndex:
    """An index that is not local, and how often it was asked."""

    def __init__(self, *labels):
        self.labels, self.walks, self.asked, self.walking = labels, 0, [], threading.Lock()
        self.go_on = threading.Event()
        self.go_on.set()

    def has_label(self, labels):
        self.asked.append(tuple(labels))
        return any(label in self.labels for label in labels)

    def label_counts(self):
        assert self.walking.acquire(blocking=False), "one walk at a time"
        self.walks += 1
        assert self.go_on.wait(60)
        self.walking.release()
        return dict.fromkeys(self.labels, 3)


def test_labels_of_a_server_are_looked_up_without_reading_all_items():
    index = OtherIndex("cat", 7, "dog")
    collection = Collection(index, SimpleNamespace(), [])
    assert collection.parse_labels(["cat", "7"]) == ("cat", "7", 7)
    assert collection.parse_labels(["cat"]) == ("cat",)
    assert index.asked == [("cat",), ("7", 7)] and not index.walks
    for _ in range(2):
        with pytest.raises(Problem, match=r"Did you mean 'dog'\? Known: 7, cat, dog\."):
            collection.parse_labels(["cat", "dogg"])
    assert index.walks == 1, "for the suggestion"
    index.labels = ("dog",)  # another program removed the items
    assert collection.parse_labels(["cat"]) == ("cat",), "it was found a moment ago"
    with pytest.raises(Problem, match=r"Unknown label 'cat'\."):
        collection.require_labels(["cat"])
    with pytest.raises(Problem, match=r"Unknown label 'cat'\. Known: 7, dog\."):
        collection.parse_labels(["cat"])
    assert collection.parse_labels(["dog"]) == ("dog",)


def test_one_thread_counts_the_labels_of_a_server(monkeypatch):
    index = OtherIndex("cat")
    collection = Collection(index, SimpleNamespace(), [])
    with ThreadPoolExecutor(4) as threads:
        index.go_on.clear()
        first = [threads.submit(collection.label_counts) for _ in range(8)]
        wait_for(lambda: index.walks == 1)
        time.sleep(0.05)  # in which the others would begin, too
        index.go_on.set()
        assert [each.result() for each in first] == [{"cat": 3}] * 8
        monkeypatch.setattr("hadahash.serve.core.collection._LABEL_SECONDS", 0.0)
        index.labels = ("dog",)
        index.go_on.clear()
        later = as_completed([threads.submit(collection.label_counts) for _ in range(4)], 60)
        assert [next(later).result() for _ in range(3)] == [{"cat": 3}] * 3, "nobody waits"
        index.go_on.set()
        assert next(later).result() == {"dog": 3}
    assert index.walks == 2


def test_unknown_labels_do_not_wait_while_a_server_counts_its_labels():
    """Else four of them block all searches by label: the service has four threads for lookups."""
    index = OtherIndex("cat")
    collection = Collection(index, SimpleNamespace(), [])
    with ThreadPoolExecutor(2) as others, ThreadPoolExecutor(4) as lookups:
        index.go_on.clear()
        try:
            counts = [others.submit(collection.label_counts)]
            wait_for(lambda: index.walks == 1)
            for each in [lookups.submit(collection.parse_labels, ["dgo"]) for _ in range(8)]:
                with pytest.raises(Problem) as caught:
                    each.result(20)
                assert caught.value.message == "Unknown label 'dgo'.", "the others are not known"
            assert lookups.submit(collection.parse_labels, ["cat"]).result(20) == ("cat",)
            counts.append(others.submit(collection.label_counts))
            assert wait(counts, 0.1).done == set(), "the overview waits"
        finally:
            index.go_on.set()
        assert [each.result() for each in counts] == [{"cat": 3}] * 2
    with pytest.raises(Problem, match=r"Unknown label 'dgo'\. Known: cat\."):
        collection.parse_labels(["dgo"])
    assert index.walks == 1


def test_labels_of_a_local_index_need_no_search(toy_collection, monkeypatch):
    index = toy_collection.index
    monkeypatch.setattr(index, "_search", None)
    collection = Collection(index, SimpleNamespace(), [])
    assert collection.parse_labels(["red"]) == ("red",)
    with pytest.raises(Problem, match="Did you mean 'blue'"):
        collection.parse_labels(["bleu"])


def test_searches_are_batched_by_ranking_and_weight(two_part_collection):
    index = two_part_collection.index
    real, batches = index.neighbors, []

    def neighbors(queries, k, *, rank, weight, **options):
        batches.append((rank, weight, len(queries)))
        return real(queries, k, rank=rank, weight=weight, **options)

    index.neighbors = neighbors
    collection = Collection(index, SimpleNamespace(), [])
    ways = [("hamming", None), ("class", None), ("photo", 2.0), ("photo", 0.5)]
    jobs = [
        job_of(collection, 4 + row, rank=rank, weight=weight, row=row)
        for row in range(3)
        for rank, weight in ways
    ]
    found = run_jobs(jobs)
    assert sorted(batches, key=str) == sorted([(*way, 3) for way in ways], key=str)
    for job, neighbors in zip(jobs, found, strict=True):
        (alone,) = real(job.query, job.k, rank=job.rank, weight=job.weight)
        assert [(n.id, n.score, n.distance) for n in neighbors] == [
            (n.id, n.score, n.distance) for n in alone
        ]


# ---- queries as text -------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_a_query_survives_as_text(seed, content, classes):
    random = np.random.default_rng(seed)
    values = np.tanh(random.standard_normal((1, 20)) * 10.0 ** random.integers(-9, 2, (1, 20)))
    query = Queries(
        values.astype(np.float32),
        content=random.standard_normal((1, 12)) if content else None,
        probabilities=random.dirichlet(np.ones(5))[None] if classes else None,
    )
    rounded = to_halves(query)
    index = SimpleNamespace(bits=20, content_bits=12 if content else 0, ranking=None)
    collection = SimpleNamespace(index=index, model=SimpleNamespace(id="0123456789abcdef"))
    again, looks = parse_values(values_text(query, "0123456789abcdef"), collection)
    assert looks is None
    shown = values_text(query, "0123456789abcdef", b"ABCDEFGH")
    assert parse_values(shown, collection)[1] == b"ABCDEFGH"
    with pytest.raises(Problem) as caught:
        parse_values(values_text(query, "fedcba9876543210"), collection)
    assert (caught.value.status, caught.value.code) == (409, "model_changed")
    for each in (rounded, again):
        assert (each.codes().packed == query.codes().packed).all(), "signs do not change"
        assert np.abs(each.values - query.values).max() < 1e-3
    assert (again.values == rounded.values).all()
    assert content == (again.content is not None) and classes == (again.probabilities is not None)
    if content:
        assert (again.codes().content == query.codes().content).all()


@pytest.mark.parametrize("text", ["", "AA==", "ADw", "fHw=" * 8, "x"])
def test_text_that_is_no_query_is_refused(text):
    index = SimpleNamespace(bits=16, content_bits=0, ranking=None)
    with pytest.raises(Problem) as caught:
        parse_values(text, SimpleNamespace(index=index))
    assert caught.value.status == 422
    collection = SimpleNamespace(index=index, model=SimpleNamespace(id="0123456789abcdef"))
    with pytest.raises(Problem) as caught:
        parse_values(f"0123456789ab:{text}", collection)
    assert caught.value.status == 422


# ---- decoder processes -----------------------------------------------------------------------------------------------

# A worker that sleeps, dies, warns or takes memory when the content says so.
_ODD_WORKER = """
import os, sys, time, warnings
import numpy as np
from hadahash.serve.core import decode_worker as worker
perform, open_reduced = worker.perform, worker.open_reduced
def odd(task, content):
    if content == b"sleep": time.sleep(60)
    if content == b"die": os._exit(9)
    if task["kind"] == "square": warnings.warn(f"{len(content)} bytes")
    return perform(task, content)
def greedy(source, side, **options):
    if source.endswith(b"greedy"): return np.ones(1 << 30, np.uint8)
    return open_reduced(source, side, **options)
worker.perform, worker.open_reduced = odd, greedy
worker.main()
"""


@pytest.fixture
def odd_worker(monkeypatch):
    monkeypatch.setattr(decode_pool, "COMMAND", (sys.executable, "-c", _ODD_WORKER))


def run_with_pool(check, on_replace=None, **settings):
    """Run `check(pool)` with a pool that is started and closed."""

    async def run():
        limits = ServeSettings(**settings)
        pool = DecodePool(limits, limits.upload_decoders, on_replace=on_replace)
        await pool.start()
        try:
            return await check(pool)
        finally:
            await pool.close()

    return asyncio.run(run())


def test_a_decoder_that_hangs_or_dies_does_not_stop_the_others(odd_worker):
    async def check(pool):
        stuck = asyncio.create_task(pool.decode_for_model(b"sleep", PREPROCESS))
        await asyncio.sleep(0)
        others = [await pool.decode_for_model(IMAGE, PREPROCESS) for _ in range(20)]
        assert not stuck.done()
        dead = asyncio.create_task(pool.decode_for_model(b"die", PREPROCESS))
        errors = await asyncio.gather(stuck, dead, return_exceptions=True)
        again = [await pool.decode_for_model(IMAGE, PREPROCESS) for _ in range(4)]
        return errors, others + again

    errors, squares = run_with_pool(check, decode_workers=2, decode_seconds=3)
    assert [error.status for error in errors] == [422, 422]
    expected = shrink_to_square(open_image(IMAGE), 20)
    assert all(np.array_equal(each.pixels, expected) for each in squares), "decoded as when indexed"
    looks = appearance_bits(open_reduced(IMAGE, 20))
    assert all(each.looks == looks for each in squares)


def test_decoders_that_were_killed_are_replaced_before_the_next_image(odd_worker):
    async def check(pool):
        for worker in pool._workers:
            os.kill(worker.pid, signal.SIGKILL)
        return [await pool.decode_for_model(IMAGE, PREPROCESS) for _ in range(4)]

    assert len(run_with_pool(check, decode_workers=2)) == 4


def test_decoding_is_limited_in_memory(odd_worker):
    replaced = []

    async def check(pool):
        with pytest.raises(Problem) as caught:
            await pool.decode_for_model(IMAGE + b"greedy", PREPROCESS)
        return caught.value

    limits = {"decode_workers": 1, "decode_memory": 500_000_000}
    problem = run_with_pool(check, lambda: replaced.append(1), **limits)
    assert (problem.status, problem.code) == (413, "image_too_large") and replaced == []


def test_warnings_about_a_file_do_not_reach_the_log(odd_worker, capfd):
    run_with_pool(lambda pool: pool.decode_for_model(IMAGE, PREPROCESS), decode_workers=1)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("command", [("false",), ("/no/such/program",), ("sleep", "60")])
def test_a_decoder_that_does_not_start_is_an_error(monkeypatch, command, caplog):
    monkeypatch.setattr(decode_pool, "COMMAND", command)
    with pytest.raises(Problem) as caught:
        run_with_pool(None, decode_workers=1, start_seconds=0.5)
    assert caught.value.status == 503 and "does not start" in caplog.text


def test_a_decoder_that_does_not_start_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(decode_pool, "COMMAND", ("false",))

    async def start_twice():
        pool = DecodePool(ServeSettings(decode_workers=1), 1)
        for _ in range(2):
            with pytest.raises(Problem):
                await pool.start()

    asyncio.run(start_twice())
    assert caplog.text.count("does not start") == 1


def test_no_process_is_left():
    async def processes(pool):
        return [worker._process for worker in pool._workers]

    ended = run_with_pool(processes, decode_workers=3)
    assert [process.returncode for process in ended] == [-9, -9, -9]


# ---- the map ---------------------------------------------------------------------------------------------------------


def test_the_map_shows_the_first_two_principal_components():
    rng = np.random.default_rng(0)
    signs = np.where(rng.random((300, 24)) < 0.5, 1, -1)
    points = project(Codes(packed=pack(signs), bits=24))
    centered = signs - signs.mean(axis=0)
    plane = centered @ np.linalg.svd(centered, full_matrices=False)[2][:2].T
    for mine, theirs in zip(points.T, plane.T, strict=True):
        assert abs(np.corrcoef(mine, theirs)[0, 1]) > 0.999
    assert np.abs(points).max() == pytest.approx(1)
    assert np.array_equal(points, project(Codes(packed=pack(signs), bits=24)))


def test_items_with_the_same_code_are_placed_side_by_side():
    codes = Codes(packed=np.repeat(np.uint8([[0], [255]]), 50, axis=0), bits=8)
    points = project(codes)
    assert len(np.unique(points.round(6), axis=0)) == 100
    width = max(np.ptp(points[:50, 0]), np.ptp(points[50:, 0]))
    assert width < abs(points[:50, 0].mean() - points[50:, 0].mean())


@pytest.mark.parametrize("count", [0, 1, 2])
def test_maps_of_very_few_items(count):
    points = project(Codes(packed=np.zeros((count, 2), np.uint8), bits=16))
    assert points.shape == (count, 2) and np.isfinite(points).all()
