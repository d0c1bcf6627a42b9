"""Networks: backbones from pixels to features, and the layers from features to values."""

from ..config import EMBEDDINGS
from .backbones import Backbone, GivenFeatures, build_backbone, list_backbones
from .heads import HashHead
from .initialization import SkipInitialization

__all__ = [
    "EMBEDDINGS",
    "Backbone",
    "GivenFeatures",
    "HashHead",
    "SkipInitialization",
    "build_backbone",
    "list_backbones",
]
