"""What we depend on: pinned packages against known vulnerabilities, and the bill of materials."""

import json
import zipfile
from datetime import date
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.version import Version

from audit import (  # pyright: ignore[reportMissingImports]
    ADVISORIES,
    NOT_PINNED,
    Advisory,
    Range,
    findings,
    from_osv,
    not_audited,
    not_looked_into,
    read_advisories,
    read_pins,
)
from sbom import EXTRAS, needed, sbom  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[2]
PINS = read_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
KNOWN = json.loads(ADVISORIES.read_text(encoding="utf-8"))


def test_no_pin_is_known_to_be_vulnerable():
    assert list(findings(PINS, read_advisories(KNOWN), KNOWN["accepted"])) == []
    assert len(KNOWN["advisories"]) > 20
    assert all(len(reason) > 20 for reason in KNOWN["accepted"].values())


def test_every_pin_was_looked_into():
    assert list(not_looked_into(PINS, KNOWN["looks"])) == []
    for look in KNOWN["looks"]:
        assert date.fromisoformat(look["on"])
        assert look.get("found", {}).keys() <= look["packages"].keys()


def test_a_pin_that_nobody_looked_into_is_named():
    """Nor is an older look one at a newer version."""
    looks = [{"on": "2026-11-18", "how": "by hand", "packages": {"Jinja2": "3.1.6", "h11": "0.16.0"}}]
    pins = read_pins("jinja2==3.1.6\nh11==0.17.0\nlazy_loader==0.6")
    first, second = not_looked_into(pins, looks)
    assert first.startswith("nobody has looked for vulnerabilities of h11 0.17.0: --update, or")
    assert "lazy-loader 0.6" in second


def test_what_is_accepted_is_not_used():
    """The cache of lm-eval, the only thing that opens sqlitedict."""
    running = (ROOT / "src/multimdm/evaluation/harness/running.py").read_text(encoding="utf-8")
    assert "simple_evaluate" in running
    assert "use_cache" not in running


def test_older_pins_are_found():
    old = read_pins("h11==0.14.0\nJinja2==3.1.5  # a comment\n\n# another\nprotobuf==5.29.4")
    found = list(findings(old, read_advisories(KNOWN), {}))
    assert found[0] == "h11 0.14.0 has GHSA-vqfr-h8mv-ghfj; raise it to 0.16.0"
    assert found[1] == "jinja2 3.1.5 has GHSA-cpwx-vrp4-4pq7; raise it to 3.1.6"
    assert found[2:] == [
        "protobuf 5.29.4 has CVE-2025-4565; raise it to 5.29.5",
        "protobuf 5.29.4 has CVE-2026-0994; raise it to 5.29.6",
    ]


@pytest.mark.parametrize(
    ("part", "version", "holds"),
    [
        (Range("1.0", "2.0"), "0.9", False),
        (Range("1.0", "2.0"), "1.0", True),
        (Range("1.0", "2.0"), "1.10", True),
        (Range("1.0", "2.0"), "2.0rc1", True),
        (Range("1.0", "2.0"), "2.0", False),
        (Range(last_affected="3.1"), "3.1", True),
        (Range(last_affected="3.1"), "3.1.1", False),
        (Range("2"), "99", True),
    ],
)
def test_ranges(part, version, holds):
    assert part.holds(Version(version)) == holds


def test_what_has_no_fix_is_accepted_by_name_or_not_at_all():
    pins, advisories = {"odd": Version("1")}, [Advisory("X-1", "odd", (Range(),)), Advisory("X-2", "odd", (Range(),))]
    (found,) = findings(pins, advisories, {"X-1": "never called"})
    assert found == "odd 1 has X-2; no version has it fixed: replace it, or say why it is accepted"
    (found,) = findings(pins, advisories[:1], {"X-1": "never called", "X-9": "gone"})
    assert found.startswith("X-9 is accepted, but no pinned package has it any more")


def test_what_is_installed_is_what_is_audited():
    pins = read_pins("torch==2.13.0\nh11==0.16.0")
    installed = {"torch": "2.13.0+cpu", "h11": "0.15.0", "unknown": "1", "pip": "20"}
    assert list(not_audited(pins, installed)) == [
        "h11 0.15.0 is installed, but constraints.txt has 0.16.0",
        "unknown 1 is installed, but not pinned in constraints.txt",
    ]
    with pytest.raises(ValueError, match=r"constraints.txt must pin name==version; got 'torch>=2'"):
        read_pins("torch>=2")


def test_the_list_can_be_renewed_from_osv(tmp_path):
    def record(name, ranges, **more):
        affected = {"package": {"ecosystem": "PyPI", "name": name}, "ranges": ranges}
        return {"affected": [affected], **more}

    events = [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "2.0"}, {"last_affected": "2.3"}]
    records = {
        "A": record("Some_Thing", [{"type": "ECOSYSTEM", "events": events}]),
        "B": record("some-thing", [{"type": "GIT", "events": [{"introduced": "0"}, {"fixed": "c0ffee"}]}]),
        "C": record("other", [{"type": "ECOSYSTEM", "events": events}]),
        "D": record("some.thing", [{"type": "ECOSYSTEM", "events": events}], withdrawn="2026-01-01"),
    }
    records["E"] = record("some.thing", [])
    records["E"]["affected"][0]["versions"] = ["1.5"]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, data in records.items():
            archive.writestr(f"{name}.json", json.dumps({"id": name, **data}))
    found = read_advisories({"advisories": from_osv(tmp_path / "all.zip", {"some-thing": Version("1")})})
    assert [one.id for one in found] == ["A", "E"]
    affected = {
        version: [one.id for one in found if one.affects(Version(version))] for version in ("1.1", "1.2", "1.5")
    }
    assert affected == {"1.1": ["A"], "1.2": [], "1.5": ["E"]}
    assert [version for version in ("2.3", "2.4") if found[0].affects(Version(version))] == ["2.3"]


def test_the_bill_of_materials_is_whole():
    graph = needed(distribution("multimdm"), EXTRAS)
    document = sbom(graph)
    assert sbom(graph) == document
    json.dumps(document)
    components = {one["name"]: one for one in document["components"]}
    assert {"torch", "fastapi", "lm-eval", "peft", "tokenizers"} <= components.keys()
    assert not components.keys() & {"pytest", "ruff", "playwright", "multimdm"}
    for name, one in components.items():
        assert name in NOT_PINNED or Version(Version(one["version"]).public) == PINS[name]
    references = {one["bom-ref"] for one in (*document["components"], document["metadata"]["component"])}
    assert len(references) == len(components) + 1
    for one in document["dependencies"]:
        assert {one["ref"], *one["dependsOn"]} <= references
    assert sum("licenses" in one for one in components.values()) > 0.9 * len(components)


def test_make_runs_them():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    check = text.partition("\ncheck:")[2].partition("\n\n")[0]
    assert "tools/audit.py" in check
    assert "tools/sbom.py runs/sbom.cdx.json" in text
