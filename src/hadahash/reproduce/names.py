"""Names of methods and data sets as they are printed in tables."""

from __future__ import annotations

_NAMES = {
    "lsh": "LSH",
    "itq": "ITQ",
    "ksh": "KSH",
    "sdh": "SDH",
    "ssdh": "SSDH",
    "dpsh": "DPSH",
    "dsdh": "DSDH",
    "hashnet": "HashNet",
    "mihash": "MIHash",
    "csq": "CSQ",
    "orthohash": "OrthoHash",
    "classify": "classify, encode",
    "hcsdh": "HC-SDH",
    "hcdh": "HCDH",
    "hcdh-far": "HCDH (far)",
    "hcdh-plus": "HCDH-plus",
    "hcdh-h": "HCDH-H",
    "hcdh-c": "HCDH-C",
    "hcdh-2": "HCDH-2",
    "cifar10": "CIFAR-10",
    "tinyimagenet100": "Tiny-ImageNet-100",
    "voc2012": "VOC 2012",
    "nuswide21": "NUS-WIDE-21",
    "imagenet100": "ImageNet-100",
}
CODEBOOK_METHODS = ("hcdh", "hcdh-h", "hcdh-2", "hcsdh")  # whose paper prescribes Algorithm 1


def display_name(name: str, codebook: str | None = None) -> str:
    """Return the printed name of a method or data set.

    Args:
        name: The name in the registry.
        codebook: The codebook design of a result; it is named where it is not the paper's.

    Returns:
        The printed name.

    Example:
        >>> display_name("hcdh-2"), display_name("hcdh", "far"), display_name("photos")
        ('HCDH-2', 'HCDH (far)', 'photos')
    """
    shown = _NAMES.get(name, name)
    if name in CODEBOOK_METHODS and codebook not in (None, "paper"):
        return f"{shown} ({codebook})"
    return shown
