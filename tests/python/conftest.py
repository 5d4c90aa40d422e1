"""What many tests use, and which were skipped for want of a package, with how to run them.

With CKPTZ_REQUIRE_ALL=1 (in CI) such a skip is a failure. A reason that names a package to install
says `needs X: pip install ..`.
"""

from __future__ import annotations

import os
from collections import Counter

import fake_objects
import pytest
from fake_objects import Bucket

_REQUIRE_ALL = "CKPTZ_REQUIRE_ALL"


def _reasons(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    found: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []) if reporter is not None else []:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        found[str(reason).removeprefix("Skipped: ")] += 1
    return found


def _wants_package(reason: str) -> bool:
    return "pip install" in reason or "could not import" in reason


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    missing = [reason for reason in _reasons(session.config) if _wants_package(reason)]
    if os.environ.get(_REQUIRE_ALL) and missing and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = _reasons(terminalreporter.config)
    for reason, times in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {times}: {reason}")
    if os.environ.get(_REQUIRE_ALL) and any(map(_wants_package, reasons)):
        terminalreporter.write_line(f"FAILED: {_REQUIRE_ALL} is set; install what is missing")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket that ckptz finds as `s3://bucket`, in memory."""
    return fake_objects.install(monkeypatch).bucket()
