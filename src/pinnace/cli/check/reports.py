"""Writes the result of a check: lines for people, annotations for GitHub, JSON and JUnit for pipelines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

import orjson

from pinnace.cli.check.manifests import Finding, SourceObject

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Everything that a check has seen, in the order of the files."""

    files: int
    checked: Sequence[SourceObject]
    skipped: Sequence[SourceObject]
    findings: Sequence[Finding]

    @property
    def errors(self) -> int:
        return sum(finding.is_error for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line with every count that is not zero."""
        warnings = len(self.findings) - self.errors
        parts = [f"{_count(len(self.checked), 'object')} in {_count(self.files, 'file')}"]
        parts += [_count(self.errors, "error")] if self.errors else ["no errors"]
        parts += [_count(warnings, "warning")] if warnings else []
        parts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        return ", ".join(parts)


def as_text(result: CheckReport) -> str:
    lines = [f"{_place(finding)}: {_level(finding)}: {_clean(_sentence(finding))}" for finding in result.findings]
    return "\n".join([*lines, result.summary]) + "\n"


def as_annotations(result: CheckReport) -> str:
    """Return workflow commands, which GitHub shows beside the lines of a pull request."""
    lines = [
        f"::{_level(finding)} file={_property(finding.source)},line={finding.position.line},"
        f"col={finding.position.column}::{_workflow_text(_sentence(finding))}"
        for finding in result.findings
    ]
    return "\n".join([*lines, result.summary]) + "\n"


def as_json(result: CheckReport) -> str:
    content = {
        "files": result.files,
        "objects": len(result.checked),
        "skipped": len(result.skipped),
        "errors": result.errors,
        "warnings": len(result.findings) - result.errors,
        "findings": [
            {
                "file": finding.source,
                "line": finding.position.line,
                "column": finding.position.column,
                "level": _level(finding),
                "object": finding.title,
                "field": finding.field,
                "message": finding.message,
            }
            for finding in result.findings
        ],
    }
    return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode() + "\n"


def as_junit(result: CheckReport) -> str:
    """Return a test case for each object, and one for each file whose text cannot be read."""
    by_object: dict[tuple[str, str, str], list[Finding]] = {
        (manifest.chunk.source, manifest.title, manifest.place): [] for manifest in result.checked
    }
    for finding in result.findings:
        by_object.setdefault((finding.source, finding.title or "text", finding.place), []).append(finding)
    failed = sum(any(finding.is_error for finding in findings) for findings in by_object.values())
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="pinnace check" tests="{len(by_object)}" failures="{failed}">',
    ]
    for (source, title, _), findings in by_object.items():
        errors = [finding for finding in findings if finding.is_error]
        attributes = f"classname={quoteattr(_clean(source))} name={quoteattr(_clean(title))}"
        if not errors:
            lines.append(f"  <testcase {attributes}/>")
            continue
        text = "\n".join(f"{_place(finding)}: {_clean(finding.message)}" for finding in errors)
        summary = quoteattr(_clean(errors[0].message))
        lines += [f"  <testcase {attributes}>", f"    <failure message={summary}>{escape(text)}</failure>"]
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>"]) + "\n"


FORMATS: dict[str, Callable[[CheckReport], str]] = {
    "text": as_text,
    "github": as_annotations,
    "json": as_json,
    "junit": as_junit,
}


def _sentence(finding: Finding) -> str:
    return f"{finding.title}: {finding.message}" if finding.title else finding.message


def _level(finding: Finding) -> str:
    return "error" if finding.is_error else "warning"


def _place(finding: Finding) -> str:
    return f"{_clean(finding.source)}:{finding.position.line}:{finding.position.column}"


def _clean(text: str) -> str:
    """Show control characters as escapes: a manifest must not move the cursor of a terminal or forge a line."""
    return _UNPRINTABLE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def _workflow_text(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _workflow_text(text).replace(":", "%3A").replace(",", "%2C")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
