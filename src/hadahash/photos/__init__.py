"""Photo folders as an index: scan, catalog, sync and search."""

from .catalog import CATALOG, Catalog
from .meta import image_folders, recorded_meta, scan_options
from .models import check_model, load_model_of
from .plan import SyncPlan, SyncSummary
from .scan import Photo, Scan, ScanOptions, scan_folder, scan_paths, scan_source
from .search import SearchHit, find_similar
from .sync import SKIPPED, PhotoIndex

__all__ = [
    "CATALOG",
    "SKIPPED",
    "Catalog",
    "Photo",
    "PhotoIndex",
    "Scan",
    "ScanOptions",
    "SearchHit",
    "SyncPlan",
    "SyncSummary",
    "check_model",
    "find_similar",
    "image_folders",
    "load_model_of",
    "recorded_meta",
    "scan_folder",
    "scan_options",
    "scan_paths",
    "scan_source",
]
