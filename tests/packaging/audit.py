"""Faults of a dependency that no test of ours sees: a withdrawn release, a known hole, two packages that disagree.

Of the versions in .venv, and of the lowest that pyproject.toml allows. The index tells which releases were yanked and
which projects are archived or quarantined; pip-audit and npm audit tell known holes, where the registry serves
advisories. One that doesn't answers "nothing known" to everything, so a release with a hole known since 2019 is asked
first. What could not be asked is said; a finding ends the script with 1.
"""

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import minimum
import steps

INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
KNOWN_HOLE = ("jinja2", "2.10")  # CVE-2019-10906, a way out of its sandbox
# timm's Mlp is used in tests; with torchvision it would not load beside constraints.txt's torch (see the Makefile).
EXPECTED = re.compile(r"timm \S+ requires torchvision, which is not installed\.")


def installed() -> dict[str, str]:
    found = json.loads(steps.run(steps.VENV_PYTHON, "-m", "pip", "list", "--format=json", "--exclude-editable"))
    return {package["name"]: package["version"].split("+")[0] for package in found}


def withdrawn(name: str, version: str) -> list[str]:
    """What the index has against that release."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    request = urllib.request.Request(f"{INDEX}/{plain}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            page = json.load(answer)
    except (urllib.error.URLError, ValueError) as error:
        steps.fail(f"{INDEX}: expected the simple API's JSON for {plain}, got {error}", 2)
    # numpy-2.4.0-cp311-….whl or numpy-2.4.0.tar.gz
    of_release = re.compile(rf"[^-]+(-[^-]+)*?-{re.escape(version)}(\.0)*(-.*\.whl|\.tar\.gz|\.zip)")
    files = [file for file in page["files"] if of_release.fullmatch(file["filename"])]
    problems = []
    if not files:
        problems.append("not in the index")
    elif all(file.get("yanked") for file in files):
        problems.append(f"yanked: {files[0]['yanked']}")
    if (status := page.get("project-status", {}).get("status", "active")) not in ("active", "deprecated"):
        problems.append(f"the project is {status}")
    return problems


def advisories(python: Path, where: Path, pins: dict[str, str]) -> list[str]:
    wanted = where / "pins.txt"
    wanted.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))
    words = [python, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner=off", "-f", "json", "-r"]
    done = subprocess.run([*words, wanted], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(done.stderr.strip()[-500:])
        return []
    return [f"{p['name']} {p['version']}: {h['id']}, mended in {', '.join(h['fix_versions']) or 'none'}"
            for p in found for h in p.get("vulns", ())]  # fmt: skip


def of_npm(where: Path) -> list[str] | None:
    """None where it could not be asked."""
    if shutil.which("npm") is None:
        return None
    (where / "package.json").write_text((steps.ROOT / "tests/deploy/package.json").read_text())
    steps.run("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", cwd=where)
    done = subprocess.run(["npm", "audit", "--json"], cwd=where, capture_output=True, text=True)
    holes = json.loads(done.stdout or "{}").get("vulnerabilities")
    return None if holes is None else [f"npm: {name}, {hole['severity']}" for name, hole in holes.items()]


def main() -> None:
    where = steps.folder("audit")
    here = installed()
    lowest = {name.split("[")[0]: version for name, version in minimum.lowest().items()}
    steps.say(f"{len(here)} installed packages agree with each other")
    done = subprocess.run([steps.VENV_PYTHON, "-m", "pip", "check"], capture_output=True, text=True)
    told = done.stdout.splitlines() if done.returncode else []
    problems = [line for line in told if not EXPECTED.fullmatch(line)]

    steps.say(f"withdrawn releases, among them and the {len(lowest)} lowest ones")
    for name, version in [*here.items(), *lowest.items()]:
        problems += [f"{name} {version}: {problem}" for problem in withdrawn(name, version)]

    steps.say("known holes")
    python = steps.environment(where / "venv")
    steps.pip(python, "pip-audit")
    if advisories(python, where, dict([KNOWN_HOLE])):
        problems += advisories(python, where, here) + advisories(python, where, lowest)
    else:
        print(f"NOT CHECKED: the registry serves no advisories ({'=='.join(KNOWN_HOLE)} passes as faultless)")
    if (holes := of_npm(where)) is None:
        print("NOT CHECKED: npm's registry serves no advisories, or npm is not here")
    else:
        problems += holes
    if problems:
        steps.fail("\n".join(problems))
    steps.say("nothing found in what could be asked")


if __name__ == "__main__":
    main()
