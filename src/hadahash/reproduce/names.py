"""Methods and data sets as people write them."""

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
    "hcdh-h": "HCDH-H",
    "hcdh-c": "HCDH-C",
    "hcdh-2": "HCDH-2",
    "cifar10": "CIFAR-10",
    "tinyimagenet100": "Tiny-ImageNet-100",
    "voc2012": "VOC 2012",
    "nuswide21": "NUS-WIDE-21",
    "imagenet100": "ImageNet-100",
}


def written(name: str) -> str:
    """
    >>> written("hcdh-2"), written("photos")
    ('HCDH-2', 'photos')
    """
    return _NAMES.get(name, name)
