"""Photo folders as an index: scan, catalog, sync and search.

The names below are imported on first use, so that light commands start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .build import Build, BuildOptions, build_or_update
    from .catalog import CATALOG, Catalog
    from .duplicates import PhotoDuplicates
    from .looks import StoredLooks, image_looks
    from .meta import image_folders, missing_photos, recorded_meta, scan_options
    from .models import check_model, load_model_of, model_for, run_of, shorten_for, unknown_run
    from .plan import SyncPlan, SyncSummary
    from .same_photo import Sameness, default_threshold, judge_same, same_photo_threshold
    from .scan import Photo, Scan, ScanOptions, scan_folder, scan_paths, scan_source
    from .search import (
        SearchHit,
        available_ranks,
        check_labels,
        check_rank,
        content_weight,
        default_rank,
        find_by_features,
        find_similar,
        find_similar_to,
    )
    from .sync import SKIPPED, PhotoIndex

# Name -> the module that defines it.
_EXPORTS = {
    "Build": "build",
    "BuildOptions": "build",
    "CATALOG": "catalog",
    "Catalog": "catalog",
    "Photo": "scan",
    "PhotoDuplicates": "duplicates",
    "PhotoIndex": "sync",
    "SKIPPED": "sync",
    "Scan": "scan",
    "ScanOptions": "scan",
    "Sameness": "same_photo",
    "SearchHit": "search",
    "StoredLooks": "looks",
    "SyncPlan": "plan",
    "SyncSummary": "plan",
    "available_ranks": "search",
    "build_or_update": "build",
    "check_labels": "search",
    "check_model": "models",
    "check_rank": "search",
    "content_weight": "search",
    "default_rank": "search",
    "default_threshold": "same_photo",
    "find_by_features": "search",
    "find_similar": "search",
    "find_similar_to": "search",
    "image_folders": "meta",
    "image_looks": "looks",
    "judge_same": "same_photo",
    "load_model_of": "models",
    "missing_photos": "meta",
    "model_for": "models",
    "recorded_meta": "meta",
    "run_of": "models",
    "same_photo_threshold": "same_photo",
    "scan_folder": "scan",
    "scan_options": "meta",
    "scan_paths": "scan",
    "scan_source": "scan",
    "shorten_for": "models",
    "unknown_run": "models",
}

__all__ = [
    "CATALOG",
    "SKIPPED",
    "Build",
    "BuildOptions",
    "Catalog",
    "Photo",
    "PhotoDuplicates",
    "PhotoIndex",
    "Sameness",
    "Scan",
    "ScanOptions",
    "SearchHit",
    "StoredLooks",
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
    "find_by_features",
    "find_similar",
    "find_similar_to",
    "image_folders",
    "image_looks",
    "judge_same",
    "load_model_of",
    "missing_photos",
    "model_for",
    "recorded_meta",
    "run_of",
    "same_photo_threshold",
    "scan_folder",
    "scan_options",
    "scan_paths",
    "scan_source",
    "shorten_for",
    "unknown_run",
]

__getattr__ = lazy_names(__name__, _EXPORTS)
