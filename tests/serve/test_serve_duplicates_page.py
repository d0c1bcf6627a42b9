"""Duplicates and similarities on the page, in a real browser."""

from __future__ import annotations

import re

import pytest
from serving import READ, WRITE, in_thread
from test_serve_page import Visitor, browser, expect, pytestmark  # noqa: F401

from hadahash.photos import PhotoDuplicates
from hadahash.serve.core import duplicates as module

AGAIN = "green/001.png"


@pytest.mark.parametrize("size", ["desk", "phone"])
def test_the_page_lists_and_dismisses_groups(browser, copies, size, monkeypatch):  # noqa: F811
    if size == "phone":  # a group has more files than are listed
        monkeypatch.setattr(module, "MOST_FILES", 1)
    with in_thread(copies, read_token=READ, write_token=WRITE) as address:
        visitor = Visitor(browser, address, size)
        page = visitor.page
        page.get_by_label("Access token").fill(WRITE)
        page.get_by_role("button", name="Open").click()
        page.get_by_role("link", name="Duplicates").click()
        expect(page.locator("#results-title")).to_have_text("The same photo more than once")
        groups = page.locator("#groups .group")
        expect(groups.first).to_be_visible()
        page.get_by_label("Bits that may differ").fill("0")
        expect(page.locator("#threshold-value")).to_have_text("0")
        equal = groups.filter(has_text="2 files, all equal")
        expect(equal).to_have_count(1)
        count = groups.count()
        expect(page.locator("#status")).to_contain_text(f"{count} groups; ")
        expect(equal.locator(".distance").first).to_have_text(re.compile(r"\d+ kB"))
        equal.get_by_role("button", name="Dismiss").click()
        expect(page.locator("#status")).to_contain_text("; 1 dismissed.")
        expect(groups).to_have_count(count - 1)
        groups.first.locator(".hit").first.click()
        expect(page.locator("#query-name")).to_contain_text(".")
        expect(page.locator("#duplicates")).to_be_hidden()
        page.go_back()
        expect(groups.first).to_be_visible()
        visitor.close()


def test_the_page_pages_and_waits(browser, copies, monkeypatch):  # noqa: F811
    monkeypatch.setattr(module, "MOST_FILES", 1)
    with in_thread(copies) as address:
        visitor = Visitor(browser, address)
        page, answers = visitor.page, iter([503])
        page.route(
            "**/v1/duplicates?*",
            lambda route: (
                route.fulfill(
                    status=503, json={"error": {"code": "busy", "message": "", "hint": ""}}
                )
                if next(answers, None)
                else route.continue_(url=route.request.url.replace("limit=20", "limit=1"))
            ),
        )
        page.get_by_role("link", name="Duplicates").click()
        expect(page.locator("#groups .group")).to_have_count(1)
        expect(page.get_by_role("button", name="Dismiss")).to_have_count(0)
        total = listed_total(copies)
        for shown in range(2, total + 1):
            page.get_by_role("button", name="More groups").click()
            expect(page.locator("#groups .group")).to_have_count(shown)
        expect(page.locator("#more")).to_be_hidden()
        visitor.close()


def listed_total(copies):
    return len(PhotoDuplicates(copies.root / "photos.index").find())


def test_shown_similarities_fall_with_the_rank(browser, copies):  # noqa: F811
    with in_thread(copies) as address:
        visitor = Visitor(browser, address)
        page = visitor.page
        visitor.upload(copies.root / "photos" / AGAIN)
        expect(visitor.hits).to_have_count(18)
        badges = visitor.hits.locator(".distance")
        for end in ("#dial-photo", "#dial-kind"):
            with page.expect_response("**/v1/search") as received:
                page.locator(end).click()
            hits = received.value.json()["hits"]
            near = [round(100 * hit["similarity"]) for hit in hits]
            expected = [
                "same photo" if hit["same_photo"] else f"{percent} % alike"
                for hit, percent in zip(hits, near, strict=True)
            ]
            expect(badges).to_have_text(expected)
            assert near == sorted(near, reverse=True) and "same photo" in expected
        assert "kind and content" in badges.last.get_attribute("title")
        visitor.close()


def test_no_link_without_content_bits(browser, toy_collection):  # noqa: F811
    with in_thread(toy_collection) as address:
        visitor = Visitor(browser, address)
        expect(visitor.page.locator("#grid .hit").first).to_be_visible()
        expect(visitor.page.locator("#duplicates-link")).to_be_hidden()
        visitor.close()
