"""Photo folders as an index: scan, catalog, sync and search."""

from .catalog import CATALOG, Catalog
from .models import check_model, load_model_of
from .plan import SyncPlan, SyncSummary
from .scan import Photo, Scan, ScanOptions, scan_folder, scan_paths, scan_source
from .search import SearchHit, find_similar
from .sync import SKIPPED, PhotoIndex, image_folders

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
    "scan_folder",
    "scan_paths",
    "scan_source",
]
