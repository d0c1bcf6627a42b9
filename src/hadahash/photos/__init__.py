"""Photo folders as an index: scan, catalog, sync and search."""

from .build import Build, BuildOptions, build_or_update
from .catalog import CATALOG, Catalog
from .duplicates import PhotoDuplicates, default_threshold, same_photo_threshold
from .meta import image_folders, missing_photos, recorded_meta, scan_options
from .models import check_model, load_model_of, shorten_for, unknown_run
from .plan import SyncPlan, SyncSummary
from .scan import Photo, Scan, ScanOptions, scan_folder, scan_paths, scan_source
from .search import (
    SearchHit,
    available_ranks,
    check_labels,
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
    "Build",
    "BuildOptions",
    "Catalog",
    "Photo",
    "PhotoDuplicates",
    "PhotoIndex",
    "Scan",
    "ScanOptions",
    "SearchHit",
    "SyncPlan",
    "SyncSummary",
    "available_ranks",
    "build_or_update",
    "check_labels",
    "check_model",
    "check_rank",
    "content_weight",
    "default_rank",
    "default_threshold",
    "find_similar",
    "find_similar_to",
    "image_folders",
    "load_model_of",
    "missing_photos",
    "recorded_meta",
    "same_photo_threshold",
    "scan_folder",
    "scan_options",
    "scan_paths",
    "scan_source",
    "shorten_for",
    "unknown_run",
]
