"""Fill in the templates of the HTML reports."""

from __future__ import annotations

import functools
import platform
from datetime import datetime, timezone

import jinja2

from regraft import __version__


def render(template: str, **values: object) -> str:
    """Return a template's page with these values, which are escaped; what UTF-8 cannot encode
    becomes "?"."""
    page = (
        _environment()
        .get_template(template)
        .render(
            regraft=__version__,
            python=platform.python_version(),
            written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            **values,
        )
    )
    return page.encode("utf-8", "replace").decode()


@functools.cache
def _environment() -> jinja2.Environment:
    """Return the environment of the templates in this package."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("regraft.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
