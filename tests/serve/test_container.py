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


def test_the_image_installs_less_than_500_mb_and_no_torch():
    """The packages of the last stage, with hadahash and the ready-made model, as installed here."""
    from importlib.metadata import distribution

    from light_install import packages_of

    text = (ROOT / "Dockerfile").read_text()
    last = re.search(r"/opt/hadahash/bin/pip install .*'\.\[([a-z,]+)\]'", text)
    assert last is not None and text.count("/opt/hadahash/bin/pip install") == 1
    names = packages_of(last[1].split(","))
    assert "onnxruntime" in names and not {"torch", "timm", "scipy"} & set(names)
    files = [
        Path(str(distribution(name).locate_file(file)))
        for name in names
        for file in distribution(name).files or ()
    ]
    files += list((ROOT / "src" / "hadahash").rglob("*"))
    assert sum(path.stat().st_size for path in files if path.is_file()) < 500e6


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


def test_thumbnails_are_in_a_volume_and_not_in_memory():
    yaml = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    ours, image = compose["services"]["hadahash"], (ROOT / "Dockerfile").read_text()
    folder = re.search(r"XDG_CACHE_HOME=(\S+)", image)
    assert folder is not None and f"cache:{folder[1]}" in ours["volumes"]
    assert "cache" in compose["volumes"] and folder[1] not in ours["tmpfs"]
    assert re.search(rf"install --directory --owner 10001 .*{folder[1]}\n", image), "its owner"
