"""The lock files of the image pin everything that it installs, by hash."""

from __future__ import annotations

import configparser
import re

import pytest
from packaging.requirements import Requirement

from tests.markdown_pages import ROOT

FOLDER = ROOT / "packaging" / "image"
_PIN = re.compile(r"^([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")


def pins(text):
    """Name -> version of each pin.

    Raises:
        AssertionError: a line is no pin of one version with its hashes.
    """
    found = {}
    lines = [line.strip() for line in text.splitlines() if not line.strip().startswith("#")]
    for line in "\n".join(lines).replace(" \\\n", " ").splitlines():
        pin = _PIN.match(line)
        assert pin is not None, line
        found[pin[1]] = pin[2]
    return found


def wanted(variant):
    """Requirements of setup.cfg that a variant of the image has."""
    made = dict(
        re.findall(r"^EXTRAS_(\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    extras = made[variant].replace("$(EXTRAS_core)", made["core"]).split()
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = [parser["options.extras_require"][extra] for extra in extras]
    text = "\n".join([parser["options"]["install_requires"], *listed])
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Requirement(line) for line in lines if not line.startswith("kcl-mld[")]


def unmet(variant, text):
    """Requirements that a lock file does not meet."""
    locked = pins(text)
    return [
        str(one)
        for one in wanted(variant)
        if not one.specifier.contains(locked.get(one.name.replace("_", "-"), "0"))
    ]


@pytest.mark.parametrize("variant", ["core", "spark"])
def test_a_lock_file_meets_what_setup_cfg_requires(variant):
    text = (FOLDER / f"requirements-{variant}.txt").read_text()
    assert unmet(variant, text) == [], "run make lock"
    assert "://" not in text


def test_the_variants_agree():
    core, spark = (
        pins((FOLDER / f"requirements-{one}.txt").read_text()) for one in ("core", "spark")
    )
    assert core.items() <= spark.items()


def test_a_version_out_of_bounds_and_one_without_hashes_are_found():
    text = (FOLDER / "requirements-core.txt").read_text()
    old = re.sub(r"^click==\S+", "click==7.0", text, flags=re.MULTILINE)
    assert unmet("core", old) == ["click>=8.3"]
    bare = re.sub(r"^(click==\S+) (?:\\\n    --hash=\S+ ?)+", r"\1", text, flags=re.MULTILINE)
    assert bare != text
    with pytest.raises(AssertionError, match=r"click=="):
        pins(bare)
