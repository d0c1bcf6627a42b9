"""Helpers for the tests of `index upgrade`: clients that search all the time, and what they got."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import httpx
import numpy as np

from hadahash.model import HashModel


@dataclass
class Searching:
    """Clients that search by image and by id until they are stopped, and keep every answer."""

    url: str
    images: dict[str, bytes]
    answers: list[tuple[str, str, dict]] = field(default_factory=list)
    problems: list[object] = field(default_factory=list)

    def __enter__(self):
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in range(2)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number):
        names = sorted(self.images)
        with httpx.Client(base_url=self.url, timeout=60) as client:
            for step in range(number, 1_000_000, 2):
                if self._stop.is_set():
                    return
                name = names[step % len(names)]
                try:
                    self._ask_again(client, name, by_id=step % 3 == 0)
                except Exception as problem:
                    self.problems.append(problem)

    def _ask_again(self, client, name, *, by_id):
        """On a machine so busy that the connection was idle for 5 s, the server may close it just
        when the next request is sent; then every HTTP client sends it again."""
        try:
            self._ask(client, name, by_id=by_id)
        except httpx.RemoteProtocolError:
            self._ask(client, name, by_id=by_id)

    def _ask(self, client, name, *, by_id):
        if by_id:
            answer = client.post("/v1/search", json={"id": name, "k": 5, "rank": "hamming"})
        else:
            files, data = {"image": self.images[name]}, {"k": "5", "rank": "hamming"}
            answer = client.post("/v1/search", files=files, data=data)
        if answer.status_code != 200:
            self.problems.append((answer.status_code, answer.text))
            return
        self.answers.append((name, "id" if by_id else "image", answer.json()))

    def models(self):
        return {answer["query"]["model"] for _, _, answer in self.answers}


def check(answers, folders, ids, images):
    """Every answer is that of one model: its code, and its distances to codes of the same model."""
    expected = {}
    for folder in folders:
        model = HashModel.load(folder, device="cpu")
        names = sorted(images)
        codes = model.encode([images[name] for name in names]).packed
        expected[model.id] = dict(zip(names, codes, strict=True))
    for name, how, answer in answers:
        codes = expected[answer["query"]["model"]]
        code = np.frombuffer(bytes.fromhex(answer["query"]["code"]), np.uint8)
        assert (code == codes[name]).all(), (name, how)
        assert len(answer["hits"]) == 5 and answer["hits"][0]["distance"] == 0
        for hit in answer["hits"]:
            bits = np.unpackbits(codes[hit["id"]] ^ code).sum()
            assert bits == hit["distance"], "a code of another model"
            assert hit["id"] in ids
