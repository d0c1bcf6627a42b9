"""Photo folders as an index: scan, catalog, sync and search."""

from .catalog import CATALOG, Catalog
from .duplicates import PhotoDuplicates, default_threshold
from .models import check_model, load_model_of
from .plan import SyncPlan, SyncSummary
from .scan import Photo, Scan, scan_folder, scan_paths
from .search import (
    SearchHit,
    available_ranks,
    check_rank,
    content_weight,
    default_rank,
    find_similar,
    find_similar_to,
)
from .sync import SKIPPED, PhotoIndex

__all__ = [
    "CATALOG",
    "SKIPPED",
    "Catalog",
    "Photo",
    "PhotoDuplicates",
    "PhotoIndex",
    "Scan",
    "SearchHit",
    "SyncPlan",
    "SyncSummary",
    "available_ranks",
    "check_model",
    "check_rank",
    "content_weight",
    "default_rank",
    "default_threshold",
    "find_similar",
    "find_similar_to",
    "load_model_of",
    "scan_folder",
    "scan_paths",
]
