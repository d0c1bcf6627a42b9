"""Photo folders as an index: scan, catalog, sync and search."""

from .catalog import CATALOG, Catalog
from .models import check_model, load_model_of, shorten_for
from .plan import SyncPlan, SyncSummary
from .scan import Photo, Scan, scan_folder, scan_paths
from .search import SearchHit, find_similar
from .sync import SKIPPED, PhotoIndex

__all__ = [
    "CATALOG",
    "SKIPPED",
    "Catalog",
    "Photo",
    "PhotoIndex",
    "Scan",
    "SearchHit",
    "SyncPlan",
    "SyncSummary",
    "check_model",
    "find_similar",
    "load_model_of",
    "scan_folder",
    "scan_paths",
    "shorten_for",
]
