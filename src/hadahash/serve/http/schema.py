"""Parameters and responses, as described by OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    StrictInt,
    StringConstraints,
    TypeAdapter,
    field_validator,
    model_validator,
)

Id = StrictInt | str
Label = Annotated[str, StringConstraints(min_length=1, max_length=255)]
NewName = Annotated[
    str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")
]
Code = Annotated[str, StringConstraints(pattern=r"^([0-9a-fA-F]{2})+$", max_length=128)]
Values = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9a-f]{12}:[0-9A-Za-z+/]+={0,2}(:[0-9a-f]{16})?$", max_length=32_768
    ),
]
GroupKey = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Looks = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{16}$")]
Model = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Rank = Literal["hamming", "class", "photo"]
# Writes long answers as JSON, from plain values: a model per hit would take longer than a search.
PLAIN_VALUES: TypeAdapter[Any] = TypeAdapter(Any)

_ID_TEXT = (
    "Integers from 2**53 on are text. A character of a file name that is not UTF-8 is U+FFFD and "
    "four hexadecimal digits."
)
_MODEL_TEXT = (
    "`model` of the response that `code` is from: after the index was upgraded to another model, "
    "the code is refused with 409. Without it, a code is taken as one of the current model."
)
_MADE_TEXT = "Id of the model that made the code."


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SearchParameters(_Parameters):
    """Parameters of a search; `id` and `code` are not needed if an image is uploaded."""

    id: Id | None = Field(None, description="Search from an item of the index.")
    code: Code | None = Field(
        None, description="Search from a code: its packed bits in hexadecimal digits."
    )
    content: Code | None = Field(
        None, description="Content bits of `code`, if the index has them; hexadecimal digits."
    )
    values: Values | None = Field(
        None,
        description="Search from `values` of an earlier response: the same query, without its "
        "image.",
    )
    looks: Looks | None = Field(
        None,
        description="`looks` of the response that `code` is from, to mark the same photo; "
        "hexadecimal digits.",
    )
    vector: list[FiniteFloat] | None = Field(
        None,
        min_length=1,
        max_length=65_536,
        description="Search from a vector, in an index of embeddings.",
    )
    k: int = Field(10, ge=1, description="Number of nearest items to return.")
    radius: int | None = Field(None, ge=0, description="Maximum distance in bits.")
    label: list[Label] = Field([], description="Only items with one of these labels.")
    rank: Rank | None = Field(
        None,
        description="Order of the results. hamming: distance of the class bits. class: "
        "probability of sharing a class. photo: class and content. Default: `rank` of /v1/stats.",
    )
    weight: float | None = Field(
        None,
        ge=0,
        le=10_000,
        allow_inf_nan=False,
        description="Weight of the content for rank photo: 0 looks at the kind only, large values "
        "at the photo only. Default: `weight` of /v1/stats.",
    )
    model: Model | None = Field(None, description=_MODEL_TEXT)


class ItemParameters(_Parameters):
    """A new item."""

    id: StrictInt | NewName = Field(description="A new id.")
    code: Code | None = Field(None, description="Its code, unless an image is uploaded.")
    content: Code | None = Field(None, description="Content bits of `code`, if the index has them.")
    label: list[Label] = Field([], description="Its labels.")
    model: Model | None = Field(None, description=_MODEL_TEXT)

    @field_validator("id")
    @classmethod
    def _check_range(cls, value: Id) -> Id:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("must fit into 64 bits")
        return value


class DismissParameters(_Parameters):
    """A group of duplicates: its key, or the ids of all its items."""

    key: GroupKey | None = Field(None, description="`key` of the group in /v1/duplicates.")
    threshold: int | None = Field(
        None, ge=0, le=1024, description="`threshold` of the response that `key` is from."
    )
    ids: list[Id] | None = Field(
        None, min_length=2, max_length=10_000, description="The ids of all items, without a key."
    )

    @model_validator(mode="after")
    def _check_choice(self) -> DismissParameters:
        if (self.key is None) == (self.ids is None):
            raise ValueError("give either key or ids")
        if self.threshold is not None and self.key is None:
            raise ValueError("threshold is only for key")
        return self


class NoParameters(_Parameters):
    """No parameters besides the image."""


class Took(BaseModel):
    """Milliseconds per stage, waiting included; 0 for a stage that was not needed."""

    decode: float
    encode: float
    search: float
    total: float


class Hit(BaseModel):
    """One result."""

    id: Id = Field(description=_ID_TEXT)
    name: str = Field(description="File name without folders.")
    labels: list[Id]
    distance: int = Field(description="Number of class bits that differ.")
    content_distance: int | None = Field(
        description="Number of content bits that differ; null without content bits."
    )
    looks_distance: int | None = Field(
        description="Number of bits that differ of the 64 that tell what photos look like; null if "
        "those of the query or of the item are not known."
    )
    score: float | None = Field(
        description="The greater, the more similar; null if ordered by distance."
    )
    similarity: float = Field(
        description="0 to 1, in the order of the hits. hamming: the fraction of class bits that "
        "are equal. class: the probability of sharing a class. photo: kind and content together, "
        "1 for the greatest score that an item could have."
    )
    same_photo: bool | None = Field(
        description="Whether it shows the same photo, by the rule of /v1/duplicates: at most "
        "`same_photo` of /v1/stats bits of content and looks differ, or at most 1/16 of the "
        "content bits if the looks are not known. null if codes tell only classes apart."
    )
    code: str
    has_image: bool


class Query(BaseModel):
    """The resolved query."""

    id: Id | None
    name: str | None
    labels: list[Id]
    code: str
    bits: int
    content: str | None = Field(description="Content bits in hexadecimal digits.")
    content_bits: int
    values: str | None = Field(
        description="For further searches from an uploaded image; null for codes and ids."
    )
    looks: str | None = Field(
        description="What the image looks like, in hexadecimal digits; null if it is not known."
    )
    model: str = Field(description=_MADE_TEXT)


class SearchAnswer(BaseModel):
    """The most similar items first: by score (or distance), then by id."""

    query: Query
    rank: Rank
    weight: float | None = Field(description="Weight of the content; null unless rank is photo.")
    hits: list[Hit]
    exact: bool = Field(description="Guaranteed to equal a full scan.")
    took_ms: Took


class EncodeAnswer(BaseModel):
    """The code of an image."""

    code: str
    bits: int
    content: str | None = Field(description="Content bits in hexadecimal digits.")
    content_bits: int
    values: str = Field(description="Real-valued query for /v1/search.")
    looks: str = Field(description="What the image looks like, in hexadecimal digits.")
    model: str = Field(description=_MADE_TEXT)
    took_ms: Took


class ItemAnswer(BaseModel):
    """An item as it is stored."""

    id: Id = Field(description=_ID_TEXT)
    labels: list[Id]
    code: str
    content: str | None
    took_ms: Took


class GroupItem(BaseModel):
    """A file of a group of duplicates."""

    id: Id = Field(description=_ID_TEXT)
    name: str = Field(description="File name without folders.")
    labels: list[Id]
    size: int | None = Field(description="Bytes of its image file; null if there is none.")
    has_image: bool


class Group(BaseModel):
    """Items that show the same photo."""

    number: int = Field(description="From 1 on, the largest group first.")
    count: int = Field(description="Number of items.")
    widest: int = Field(description="The greatest number of bits in which two of them differ.")
    equal: bool = Field(description="Whether all files have the same content.")
    items: list[GroupItem] = Field(description="At most 100 of them, in the order of ids.")
    key: str = Field(description="Identifies the group by all its items, to dismiss it.")


class DuplicatesAnswer(BaseModel):
    """Groups of the same photo."""

    threshold: int = Field(description="Number of bits that may differ.")
    bits: int = Field(description="Number of bits that were compared.")
    part: str = Field(
        description="content; or class if the codes tell only classes apart, so that a group may "
        "be a whole class."
    )
    total: int = Field(description="Number of groups.")
    surplus: int = Field(description="Number of items that are copies of others.")
    dismissed: int = Field(description="Number of dismissed groups, which are not listed.")
    unread: int = Field(
        description="Photos that were left out because it is not known what they look like. "
        "`hadahash duplicates` reads them."
    )
    groups: list[Group]


class Dismissed(BaseModel):
    """The list of dismissed groups."""

    dismissed: int = Field(description="Number of dismissed groups.")


class Reloaded(BaseModel):
    """The index after it was opened again."""

    items: int


class LabelCount(BaseModel):
    """A label and the number of items that have it."""

    label: str
    count: int


class Limits(BaseModel):
    """Limits of a request."""

    max_bytes: int
    max_pixels: int
    max_side: int
    max_k: int


class Stats(BaseModel):
    """The index, the model and the limits."""

    version: str
    items: int
    bits: int
    content_bits: int
    ranks: list[Rank] = Field(description="Possible values of `rank`.")
    rank: Rank = Field(description="Default of `rank`.")
    weight: float | None = Field(description="Default of `weight`; null without content bits.")
    same_photo: int | None = Field(
        description="Up to this number of differing bits two photos are called the same: content "
        "bits (or bits, if the codes were made without labels) and 64 bits of what photos look "
        "like. null if codes tell only classes apart."
    )
    engine: str
    model: dict[str, Any]
    labels: list[LabelCount] = Field(description="The most frequent labels of all items.")
    label_count: int = Field(description="Number of distinct labels.")
    images_found: bool = Field(description="False if no image file was found.")
    limits: Limits
    waiting: int = Field(description="Searches running or waiting.")
    receiving: int = Field(description="Requests whose body is being received.")
    writable: bool
    uptime_seconds: float


class MapAnswer(BaseModel):
    """Points in the plane. All lists but `labels` have one entry per item."""

    ids: list[Id]
    x: list[float]
    y: list[float]
    label: list[int] = Field(description="First label as a position in `labels`; -1: none.")
    labels: list[str] = Field(description="Labels of the items on the map.")
    total: int = Field(description="Number of items in the collection.")


class Health(BaseModel):
    """State of the service."""

    status: str
    problem: str | None = Field(
        None, description="Current problem, if the service continues with limitations."
    )


class ErrorDetail(BaseModel):
    """What went wrong."""

    code: str
    message: str
    hint: str


class ErrorAnswer(BaseModel):
    """The response to a failed request."""

    error: ErrorDetail
