"""What was published, as data: the claims to compare with, and the settings to start from."""

from remask.papers.published import Claim, Settings, claims, published_settings

__all__ = ["Claim", "Settings", "claims", "published_settings"]
