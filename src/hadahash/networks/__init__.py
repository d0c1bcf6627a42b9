"""Networks: backbones that turn pixels into features, and the small layers that turn features into code values."""

from .backbones import Backbone, build_backbone, list_backbones
from .heads import HashHead

__all__ = ["Backbone", "HashHead", "build_backbone", "list_backbones"]
