"""Configuration: the settings of a project, from `[tool.regraft]` or `regraft.toml`."""

from regraft.configuration.discovery import group_by_settings, settings_for
from regraft.configuration.reading import ConfigurationError, read
from regraft.configuration.settings import KEYS, Settings

__all__ = ["KEYS", "ConfigurationError", "Settings", "group_by_settings", "read", "settings_for"]
