"""What comes in and goes out, as OpenAPI shows it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

Id = int | str
Label = Annotated[str, StringConstraints(min_length=1, max_length=255)]
NewId = (
    Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]
    | int
)
Code = Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{2})+$", max_length=128)]


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SearchParameters(_Parameters):
    """What to search for, unless it is an uploaded image, and how."""

    id: Id | None = Field(None, description="Search from an item of the index.")
    code: Code | None = Field(
        None, description="Search from a code: its packed bits in hexadecimal digits."
    )
    k: int = Field(10, ge=1, description="So many of the nearest items.")
    radius: int | None = Field(None, ge=0, description="Only items at most so many bits away.")
    label: list[Label] = Field([], description="Only items that carry one of these labels.")


class ItemParameters(_Parameters):
    """A new item."""

    id: NewId = Field(description="A new id.")
    code: Code | None = Field(None, description="Its code, unless an image is uploaded.")
    label: list[Label] = Field([], description="Its labels.")

    @field_validator("id")
    @classmethod
    def _fits(cls, value: Id) -> Id:
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError("must fit into 64 bits")
        return value


class NoParameters(_Parameters):
    pass


class Took(BaseModel):
    """Milliseconds, waiting for a turn included; 0 where there was nothing to do."""

    decode: float
    encode: float
    search: float
    total: float


class Hit(BaseModel):
    id: Id
    name: str = Field(description="The file's name, without folders.")
    labels: list[Id]
    distance: int
    code: str | None
    has_image: bool


class Query(BaseModel):
    id: Id | None
    name: str | None
    labels: list[Id]
    code: str
    bits: int


class SearchAnswer(BaseModel):
    query: Query
    hits: list[Hit]
    exact: bool = Field(description="Proven to be what comparing with every code gives.")
    took_ms: Took


class EncodeAnswer(BaseModel):
    code: str
    bits: int
    took_ms: Took


class ItemAnswer(BaseModel):
    id: Id
    labels: list[Id]
    code: str
    took_ms: Took


class Reloaded(BaseModel):
    items: int


class LabelCount(BaseModel):
    label: str
    count: int


class Limits(BaseModel):
    max_bytes: int
    max_pixels: int
    max_k: int


class Stats(BaseModel):
    version: str
    items: int
    bits: int
    engine: str
    model: dict[str, Any]
    labels: list[LabelCount] = Field(description="Of the items on the map.")
    limits: Limits
    waiting: int
    writable: bool
    uptime_seconds: float


class MapAnswer(BaseModel):
    """Points of the plane, one a place in each list."""

    ids: list[Id]
    x: list[float]
    y: list[float]
    label: list[int] = Field(description="A place in `labels`; -1: none.")
    labels: list[str]
    total: int


class Health(BaseModel):
    status: str


class ErrorDetail(BaseModel):
    code: str
    message: str
    hint: str


class ErrorAnswer(BaseModel):
    error: ErrorDetail


_IMAGE = {
    "type": "string",
    "format": "binary",
    "description": "A JPEG, PNG, WebP, GIF, BMP, TIFF or PPM image.",
}


def body_of(parameters: type[BaseModel]) -> dict[str, Any]:
    """The request body in OpenAPI's words: a form with an image, JSON, or the image itself with a query string."""
    schema = parameters.model_json_schema()
    fields = {
        name: part
        for name, part in schema["properties"].items()
        if name not in ("code", *_FROM_CODE[parameters])
    }
    form = {
        "type": "object",
        "properties": {"image": _IMAGE, **fields},
        "required": ["image", *(name for name in schema.get("required", []) if name in fields)],
        "additionalProperties": False,
    }
    content: dict[str, Any] = {
        "multipart/form-data": {"schema": form},
        "application/octet-stream": {"schema": _IMAGE},
    }
    if "code" in schema["properties"]:
        content["application/json"] = {"schema": schema}
    return {"requestBody": {"required": True, "content": content}}


_FROM_CODE: dict[type[BaseModel], tuple[str, ...]] = {
    SearchParameters: ("id",),
    ItemParameters: (),
    NoParameters: (),
}


def query_of(parameters: type[BaseModel]) -> list[dict[str, Any]]:
    """The same parameters as parts of a query string, for images that are the whole body."""
    schema = parameters.model_json_schema()
    skipped = ("code", *_FROM_CODE[parameters])
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": part,
            "description": part.get("description", ""),
        }
        for name, part in schema["properties"].items()
        if name not in skipped
    ]
