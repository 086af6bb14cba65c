from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Standing(_message.Message):
    __slots__ = ("site", "incarnation", "version", "weight", "released")
    SITE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    site: str
    incarnation: int
    version: int
    weight: float
    released: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, site: _Optional[str] = ..., incarnation: _Optional[int] = ..., version: _Optional[int] = ..., weight: _Optional[float] = ..., released: _Optional[_Iterable[int]] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("incarnation", "releases", "version", "run", "other", "sure", "tag", "parent", "opened")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    SURE_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    releases: int
    version: int
    run: int
    other: int
    sure: bool
    tag: bytes
    parent: int
    opened: int
    def __init__(self, incarnation: _Optional[int] = ..., releases: _Optional[int] = ..., version: _Optional[int] = ..., run: _Optional[int] = ..., other: _Optional[int] = ..., sure: _Optional[bool] = ..., tag: _Optional[bytes] = ..., parent: _Optional[int] = ..., opened: _Optional[int] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("flow", "version", "writer")
    FLOW_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    flow: _containers.RepeatedScalarFieldContainer[float]
    version: int
    writer: str
    def __init__(self, flow: _Optional[_Iterable[float]] = ..., version: _Optional[int] = ..., writer: _Optional[str] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("wire", "sender", "receiver", "incarnation", "to_incarnation", "federation", "link", "gossiped", "standings", "seal", "to_run", "other", "most", "arms", "arms_version")
    WIRE_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    GOSSIPED_FIELD_NUMBER: _ClassVar[int]
    STANDINGS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    TO_RUN_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    ARMS_FIELD_NUMBER: _ClassVar[int]
    ARMS_VERSION_FIELD_NUMBER: _ClassVar[int]
    wire: int
    sender: str
    receiver: str
    incarnation: int
    to_incarnation: int
    federation: str
    link: Register
    gossiped: _containers.RepeatedScalarFieldContainer[float]
    standings: _containers.RepeatedCompositeFieldContainer[Standing]
    seal: Seal
    to_run: int
    other: Seal
    most: Seal
    arms: _containers.RepeatedScalarFieldContainer[str]
    arms_version: int
    def __init__(self, wire: _Optional[int] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., incarnation: _Optional[int] = ..., to_incarnation: _Optional[int] = ..., federation: _Optional[str] = ..., link: _Optional[_Union[Register, _Mapping]] = ..., gossiped: _Optional[_Iterable[float]] = ..., standings: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., to_run: _Optional[int] = ..., other: _Optional[_Union[Seal, _Mapping]] = ..., most: _Optional[_Union[Seal, _Mapping]] = ..., arms: _Optional[_Iterable[str]] = ..., arms_version: _Optional[int] = ...) -> None: ...

class Reply(_message.Message):
    __slots__ = ("wire", "sender", "receiver", "incarnation", "to_incarnation", "federation", "link", "standings", "seal", "to_run", "other", "most", "arms", "arms_version")
    WIRE_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TO_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    STANDINGS_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    TO_RUN_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    ARMS_FIELD_NUMBER: _ClassVar[int]
    ARMS_VERSION_FIELD_NUMBER: _ClassVar[int]
    wire: int
    sender: str
    receiver: str
    incarnation: int
    to_incarnation: int
    federation: str
    link: Register
    standings: _containers.RepeatedCompositeFieldContainer[Standing]
    seal: Seal
    to_run: int
    other: Seal
    most: Seal
    arms: _containers.RepeatedScalarFieldContainer[str]
    arms_version: int
    def __init__(self, wire: _Optional[int] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., incarnation: _Optional[int] = ..., to_incarnation: _Optional[int] = ..., federation: _Optional[str] = ..., link: _Optional[_Union[Register, _Mapping]] = ..., standings: _Optional[_Iterable[_Union[Standing, _Mapping]]] = ..., seal: _Optional[_Union[Seal, _Mapping]] = ..., to_run: _Optional[int] = ..., other: _Optional[_Union[Seal, _Mapping]] = ..., most: _Optional[_Union[Seal, _Mapping]] = ..., arms: _Optional[_Iterable[str]] = ..., arms_version: _Optional[int] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("wire", "terms")
    WIRE_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    wire: int
    terms: str
    def __init__(self, wire: _Optional[int] = ..., terms: _Optional[str] = ...) -> None: ...

class ArmChange(_message.Message):
    __slots__ = ("content", "certificates", "signature")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    certificates: bytes
    signature: bytes
    def __init__(self, content: _Optional[bytes] = ..., certificates: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ArmDelta(_message.Message):
    __slots__ = ("wire", "sender", "federation", "known", "changes", "refused")
    WIRE_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    wire: int
    sender: str
    federation: str
    known: _containers.RepeatedScalarFieldContainer[bytes]
    changes: _containers.RepeatedCompositeFieldContainer[ArmChange]
    refused: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, wire: _Optional[int] = ..., sender: _Optional[str] = ..., federation: _Optional[str] = ..., known: _Optional[_Iterable[bytes]] = ..., changes: _Optional[_Iterable[_Union[ArmChange, _Mapping]]] = ..., refused: _Optional[_Iterable[bytes]] = ...) -> None: ...
