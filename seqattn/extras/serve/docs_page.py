"""The endpoints as a plain page, from the OpenAPI document; it loads nothing from elsewhere."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
:root{color-scheme:light dark}
p,h2,td{overflow-wrap:anywhere}
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
h2{font:600 1.1rem ui-monospace,monospace;margin-top:2.2rem}h1{font-size:1.5rem}
.wide{overflow-x:auto}table{border-collapse:collapse}
td,th{padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8886;text-align:left;vertical-align:top}
td:first-child{font-family:ui-monospace,monospace;white-space:nowrap}
@media(max-width:40rem){tr{border-bottom:1px solid #8886}
td{display:block;border:0;padding:0 0 .2rem 1rem}td:first-child{padding:.3rem 0 0}}
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the page. Args: document: an OpenAPI document, as `FastAPI.openapi` returns it."""
    title = escape(document["info"]["title"])
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    first = next(iter(operations.values()))["responses"]
    shared = {status: one for status, one in first.items() if status != "200"}
    parts = [_endpoint(name, operation, shared) for name, operation in operations.items()]
    parts += [f"<h2>Usual errors</h2>{_table(_rows(shared))}"]
    parts += [_schema(*one) for one in document["components"]["schemas"].items()]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{escape(document['info'].get('summary', ''))}. "
        f'<a href="/openapi.json">OpenAPI document</a></p>{"".join(parts)}</body></html>\n'
    )


def _endpoint(name: str, operation: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    rows = [("request", _content(operation["requestBody"]))] if "requestBody" in operation else []
    responses = operation["responses"].items()
    rows += _rows({status: one for status, one in responses if shared.get(status) != one})
    about = escape(operation.get("description", operation.get("summary", "")))
    return f"<h2>{escape(name)}</h2><p>{about}</p>{_table(rows)}"


def _rows(responses: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (status, f"{_content(response)} {escape(response.get('description', ''))}")
        for status, response in responses.items()
    ]


def _content(body: Mapping[str, Any]) -> str:
    """Return the schema of a body, or its media types."""
    content = body.get("content", {})
    schemas = [media.get("schema") for media in content.values()]
    return " or ".join(map(_type, filter(None, schemas))) or escape(", ".join(content))


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    """Return the keys of a request or a response."""
    needed = schema.get("required", ())
    rows = []
    for key, node in schema.get("properties", {}).items():
        default = (
            "required" if key in needed else f"default {escape(json.dumps(node.get('default')))}"
        )
        about = escape(node.get("description", ""))
        rows.append((key, f"{_type(node)}</td><td>{default}</td><td>{about}"))
    about = escape(schema.get("description", ""))
    return f'<h2 id="{escape(name)}">{escape(name)}</h2><p>{about}</p>{_table(rows)}'


def _table(rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"<tr><td>{escape(key)}</td><td>{html}</td></tr>" for key, html in rows)
    return f'<div class="wide"><table>{lines}</table></div>'


def _type(node: Mapping[str, Any]) -> str:
    """Describe a schema in words, with a link to one that has a name."""
    if "$ref" in node:
        name = escape(node["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if several := node.get("anyOf") or node.get("oneOf"):
        return " or ".join(map(_type, several))
    if "enum" in node:
        return "one of " + ", ".join(escape(str(value)) for value in node["enum"])
    if node.get("type") == "array":
        return f"list of {_type(node.get('items', {}))}"
    bounds = [f"{word} {node[key]:g}" for key, word in _BOUNDS.items() if key in node]
    return " ".join([escape(str(node.get("const", node.get("type", "any value")))), *bounds])


_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "maxLength": "up to"}
