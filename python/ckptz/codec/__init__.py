"""The compiled core, for the rest of the package, and arrays coded without a store.

`encode` and `decode` turn one array into bytes and back. Everything else here is for the package
itself: no other module touches the compiled one.
"""

from .arrays import decode, encode
from .core import EXACT as EXACT
from .core import OF_DELTA as OF_DELTA
from .core import OF_FULL as OF_FULL
from .core import OF_RESIDUAL as OF_RESIDUAL
from .core import Bytes as Bytes
from .core import Chain as Chain
from .core import ChangedError as ChangedError
from .core import Crc as Crc
from .core import FileSnapshot as FileSnapshot
from .core import Merge as Merge
from .core import Payload as Payload
from .core import ReadError as ReadError
from .core import RecordError as RecordError
from .core import SnapshotEncoder as SnapshotEncoder
from .core import Spec as Spec
from .core import Window as Window
from .core import __version__ as __version__
from .core import as_bytes as as_bytes
from .core import bytes_to_read as bytes_to_read
from .core import compress as compress
from .core import content_sum as content_sum
from .core import content_sums as content_sums
from .core import copy_changed as copy_changed
from .core import crc_of as crc_of
from .core import decompress as decompress
from .core import default_threads as default_threads
from .core import describe as describe
from .core import digest as digest
from .core import element_count as element_count
from .core import element_number as element_number
from .core import empty_bytes as empty_bytes
from .core import fill as fill
from .core import finish as finish
from .core import is_exact as is_exact
from .core import predictions as predictions
from .core import spec_for as spec_for
from .core import spec_of as spec_of
from .core import useless_records as useless_records

__all__ = ["decode", "encode"]
