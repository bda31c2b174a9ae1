"""A reader whose library the operator left out, so that it says so as it is imported."""

from recollect.errors import Permanent

raise Permanent("such files are not read here", code="unsupported_kind")
