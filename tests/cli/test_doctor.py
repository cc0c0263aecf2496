from __future__ import annotations

import importlib

import pytest

from tinycomp.cli import exits
from tinycomp.cli.commands import doctor


def findings(call, code: int) -> dict[str, dict[str, str]]:
    result = call("doctor", "--json")
    assert result.code == code
    assert result.json["ok"] is (code == exits.OK)
    return {f["what"]: f for f in result.json["findings"]}


def test_a_working_installation(call) -> None:
    found = findings(call, exits.OK)
    assert {"Python", "machine", "tinycomp", "native runtime", "instruction set", "threads", "C compiler"} <= set(found)
    assert "kernels" in found["native runtime"]["found"]
    assert call("doctor").out.rstrip().endswith("Everything that tinycomp needs is there.")


def test_a_native_runtime_that_does_not_load(call, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without_native(name: str, package: str | None = None):
        if name == "tinycomp.runtime.native.library":
            raise ImportError("libc.so.7 is missing")
        return real(name, package)

    monkeypatch.setattr(doctor.importlib, "import_module", without_native)
    found = findings(call, exits.FAILED)["native runtime"]
    assert found["status"] == "broken"
    assert found["found"] == "does not load: libc.so.7 is missing"
    assert "python setup.py build_ext --inplace" in found["hint"]
    assert "Something is broken." in call("doctor").out


def test_an_instruction_set_that_is_not_there(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_ISA", "vax")
    found = findings(call, exits.FAILED)["instruction set"]
    assert "Unset TINYCOMP_ISA" in found["hint"]


def test_an_instruction_set_that_was_chosen(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_ISA", "scalar")
    assert findings(call, exits.OK)["instruction set"]["found"].startswith("scalar in use")


def test_no_compiler_is_a_warning(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = findings(call, exits.OK)["C compiler"]
    assert found["status"] == "warning"
    assert "set CC" in found["hint"]


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["numpy>=1.26", "rich>=999", "no-such-package>=1", 'pytest>=8; extra == "test"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: wanted)
    monkeypatch.setattr(doctor.metadata, "version", _versions(doctor.metadata.version))
    found = {f.what: f for f in doctor._packages()}
    assert found["numpy"].status == "ok"
    assert found["rich"].status == "broken"
    assert found["rich"].hint == "pip install --upgrade 'rich>=999'"
    assert "does not import" in found["no-such-package"].found
    assert "pytest" not in found


def _versions(real):
    return lambda name: "0.1.0" if name == "tinycomp" else real(name)


@pytest.mark.parametrize(("a", "b"), [("1.9", "1.26"), ("1.26", "1.26.1"), ("2", "10")])
def test_versions_compare_as_numbers(a: str, b: str) -> None:
    assert doctor._numbers(a) < doctor._numbers(b)


def test_a_cache_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    assert doctor._cache().status == "warning"
