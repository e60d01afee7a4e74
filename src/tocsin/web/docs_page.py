"""`/api/docs` for people: every route with its parameters, body, responses and an example."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tocsin.bindings import JSON
from tocsin.web.operations import Operation, OperationDoc, Parameter, ResponseDoc, all_responses

_CODE = re.compile(r"`([^`]+)`")


def docs_body(version: str, tags: Mapping[str, str], operations: Sequence[Operation]) -> str:
    """The body of the page; tags are its chapters."""
    by_tag = {tag: [each for each in operations if each.doc.tag == tag] for tag in tags}
    contents = "".join(f'<li><a href="#{tag}">{_title(tag)}</a>: {_text(tags[tag])}</li>' for tag in tags)
    chapters = "\n".join(_chapter(tag, each) for tag, each in by_tag.items())
    return f"""<div class="docs"><h1>Tocsin API</h1>
<p>Version {escape(version)}. For machines: <a href="/openapi.json">openapi.json</a>.
Every error is <code>{{error, code, retryable}}</code>: a sentence, a code, and whether trying again may help.</p>
<ul>{contents}</ul>
{chapters}</div>"""


def _chapter(tag: str, operations: Iterable[Operation]) -> str:
    sections = "\n".join(map(_section, operations))
    return f'<section aria-labelledby="{tag}"><h2 id="{tag}">{_title(tag)}</h2>\n{sections}</section>'


def _section(operation: Operation) -> str:
    doc = operation.doc
    name, route = escape(doc.operation_id), escape(f"{operation.method} {operation.path}")
    heading = f'<h3 id="{name}"><a href="#{name}"><code>{route}</code></a></h3>'
    text = doc.summary if not doc.description else f"{doc.summary} {doc.description}"
    responses = "".join(
        f"<dt><code>{status}</code></dt><dd>{_text(response.description)}{_answer(response)}</dd>"
        for status, response in all_responses(operation).items()
    )
    return f"{heading}<p>{_text(text)}</p>{_parameters(doc)}{_body(doc)}<dl>{responses}</dl>"


def _parameters(doc: OperationDoc) -> str:
    rows = "".join(map(_parameter, doc.parameters))
    if doc.key:
        rows += f"<tr><td><code>{escape(doc.key)}</code></td><td>header</td><td>the key; required</td></tr>"
    if not rows:
        return ""
    head = "<thead><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr></thead>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"


def _parameter(parameter: Parameter) -> str:
    required = "; required" if parameter.is_required else ""
    return (
        f"<tr><td><code>{escape(parameter.name)}</code></td><td>{parameter.place}</td>"
        f"<td>{_text(parameter.description)}{required}</td></tr>"
    )


def _body(doc: OperationDoc) -> str:
    if not doc.has_body:
        return ""
    example = "" if doc.body_example is None else _example("Body", doc.body_example)
    return example or f"<p>Body: <code>{escape(_schema_name(doc))}</code>, as JSON.</p>"


def _schema_name(doc: OperationDoc) -> str:
    return "object" if doc.body is None else doc.body.__name__


def _answer(response: ResponseDoc) -> str:
    return "" if response.example is None else _example("Example", response.example.to_json())


def _example(title: str, value: JSON) -> str:
    return f"<details><summary>{title}</summary><pre>{escape(json.dumps(value, indent=2))}</pre></details>"


def _title(tag: str) -> str:
    return escape(tag[:1].upper() + tag[1:])


def _text(text: str) -> str:
    """Escaped text; text between backticks is code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
