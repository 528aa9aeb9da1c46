"""counts.py finds every spelling of an identifier, and nothing that only begins or ends like it."""
import counts
import pytest


@pytest.mark.parametrize("text", ["min_p", "set_min_p(1)", "min_p_", "--min-p 0.1", "kMinP", "has_MinP", "MIN_P", "minP"])
def test_every_spelling_is_found(text):
    assert counts.spellings("min_p").search(text)
    assert counts.spellings("min-p").search(text)


@pytest.mark.parametrize("text", ["admin_p", "min_pixels", "MinPixels", "min_p2", "min p", "KMINP_"])
def test_longer_identifiers_are_not_found(text):
    assert not counts.spellings("min_p").search(text)


def test_texts_and_other_programs_do_not_carry_a_flag():
    tree = {"common/flags.cpp": "config.set_max_q(1);", "worker/x.cpp": "kMaxQ", "router/x.cpp": '"lower --max-q"',
            "cli/x.cpp": "int max_q;", "worker/x_test.cpp": "max_q"}
    assert counts.carriers(tree, "max_q") == ["common/flags.cpp", "worker/x.cpp"]


def test_measure():
    tree = {"worker/CMakeLists.txt": "", "common/CMakeLists.txt": "",
            "worker/x.cpp": '#include "worker/part/y.h"\nfloat min_p;\n', "worker/part/y.h": '#include "worker/z.h"\n',
            "worker/z.h": '#include "common/c.h"\n', "common/c.h": "", "worker/x_test.cpp": "min_p", "docs/a.md": "min_p"}
    measured = counts.measure(tree, ["min_p"], "max_q")
    assert measured["touched"] == {"files with min_p": ["worker/x.cpp"], "files that carry max_q": []}
    assert measured["arrows"]["libraries"] == {"count": 1, "cycles": []}
    assert measured["arrows"]["folders"]["cycles"] == ["worker -> worker/part -> worker"]
    assert measured["lines_by_folder"]["worker/part"] == 1
