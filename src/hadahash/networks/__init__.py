"""Networks: backbones that turn pixels into features, and the small layers that turn features into code values."""

from .backbones import Backbone, backbones, build_backbone
from .heads import HashHead

__all__ = ["Backbone", "HashHead", "backbones", "build_backbone"]
