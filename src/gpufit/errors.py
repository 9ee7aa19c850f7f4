"""What can go wrong, as one tree of errors: each says what failed, what would work, and how the process ends."""

from __future__ import annotations


class GpufitError(Exception):
    """A failure that a user can read: `message` names what failed and the value, `hint` what would work."""

    exit_code = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GpufitError):
    """An option or argument that has no meaning as given."""

    exit_code = 2


class UnknownNameError(GpufitError):
    """A name that is in no catalogue and nowhere else that was asked."""

    exit_code = 3


class UnknownGpuError(UnknownNameError):
    """A GPU, slice or cloud instance that the catalogue does not have."""


class UnknownModelError(UnknownNameError):
    """A model that neither the catalogue nor the Hub nor the disk has."""


class ConfigError(GpufitError):
    """A config.json that cannot be read, or that says something the arithmetic does not know."""

    exit_code = 3


class DataError(GpufitError):
    """A data file of gpufit itself that breaks its schema."""

    exit_code = 70


class AccessError(GpufitError):
    """A gated or private repository."""

    exit_code = 4


class NetworkError(GpufitError):
    """The Hub could not be reached, or answered with something that is not an answer."""

    exit_code = 5
