"""Headers for pages that are one document: their own style and script and nothing else, from nobody else."""

from __future__ import annotations

import base64
import hashlib


def for_page(*, style: str, script: str = "", form_action: str = "'none'") -> dict[str, str]:
    """What a page with exactly this inline style and script is served with. `form_action` is a source of the policy's."""
    policy = {
        "default-src": "'none'",
        "style-src": _source(style),
        **({"script-src": _source(script)} if script else {}),
        "form-action": form_action,
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
    }


def _source(content: str) -> str:
    """The source that allows exactly this inline content."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
