"""The container files, which cannot be built everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_image_has_an_unprivileged_user_and_a_health_check():
    lines = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text()).splitlines()
    words = [line.split()[0] for line in lines if line.strip() and not line.startswith(("#", " "))]
    assert set(words) <= {
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "ENV",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    }
    assert (
        words.index("USER") < words.index("ENTRYPOINT")
        and "USER 10001" in lines
        and "HEALTHCHECK" in words
    )
    for line in lines:
        for source in (
            line.split()[1:-1] if line.startswith("COPY") and "--from" not in line else ()
        ):
            assert (ROOT / source).exists(), source
    kept = (ROOT / ".dockerignore").read_text().split()
    assert kept[0] == "*" and all(
        (ROOT / name[1:]).exists() for name in kept if name.startswith("!")
    )


def test_compose_publishes_the_loopback_address_only():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    ours = services["hadahash"]
    assert (
        ours["read_only"]
        and ours["cap_drop"] == ["ALL"]
        and "no-new-privileges:true" in ours["security_opt"]
    )
    assert ours["environment"]["HADAHASH_READ_TOKEN"].startswith("${HADAHASH_READ_TOKEN:?"), (
        "no token, no start"
    )
    assert [port for service in services.values() for port in service.get("ports", [])] == [
        "127.0.0.1:8000:8000"
    ]
    assert all(
        re.search(r":v?\w+\.", service["image"])
        for name, service in services.items()
        if name != "hadahash"
    ), "pinned"
