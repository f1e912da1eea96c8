"""The state *notify* of a job: the callback of its profile is called, in the depositor's `response_type`. arkqueue itself tells the batch."""

from __future__ import annotations

import json
import urllib.parse
import xml.etree.ElementTree as xml
from typing import Any

from job import Job, ask, end, inputs, service

MRT = "http://merritt.cdlib.org/terms#"
MEDIA_TYPES = {"XML": "application/xml", "JSON": "application/json", "turtle": "text/turtle"}


def main() -> None:
    job = Job()
    if not job.profile.get("callback"):
        print(f"{job.key}: the profile {job.profile_name} has no callback")
        return
    kind = job.response_type or "JSON"
    given = inputs()
    state = {
        "job_id": job.job_id,
        "batch_id": job.batch_id,
        "status": "completed",
        "profile_name": job.profile_name,
        "submitter": job.submitter,
        "submission_mode": job.submission_mode,
        "primary_id": given["mint"]["ark"],
        "local_id": given["mint"].get("local_id"),
        "version": int(given["store"]["version"]),
        "manifest_url": given["store"]["manifest_url"],
    }
    body = spoken({name: value for name, value in state.items() if value is not None}, kind)
    ask(
        "POST",
        f"{service('callback')}/{job.profile['collection']}/{urllib.parse.quote(job.key)}",
        body,
        MEDIA_TYPES[kind],
    )
    print(f"{job.key}: the callback was called, in {kind}")


def spoken(state: dict[str, Any], kind: str) -> bytes:
    """The state of a job, written as the depositor wants it."""
    if kind == "JSON":
        return json.dumps({"jobState": state}, indent=1).encode()
    if kind == "XML":
        root = xml.Element("jobState", {"xmlns": MRT})
        for name, value in state.items():
            xml.SubElement(root, name).text = str(value)
        return xml.tostring(root, "utf-8", xml_declaration=True)
    from rdflib import Graph, Literal, Namespace, URIRef

    graph, terms = Graph(), Namespace(MRT)
    graph.bind("mrt", terms)
    subject = URIRef(f"urn:mrt:job:{urllib.parse.quote(state['job_id'], safe='')}")
    for name, value in state.items():
        graph.add((subject, terms[name], URIRef(value) if name == "manifest_url" else Literal(value)))
    return graph.serialize(format="turtle", encoding="utf-8")


if __name__ == "__main__":
    end(main)
