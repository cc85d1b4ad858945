"""How tables are printed."""

from seqattn.screen import print_table


def test_names_are_printed_as_they_are(capsys):
    print_table("runs[old]", {"attention=[mha,gqa]": "a[/b] :key:"}, ["[x]"], ["see [y]"])
    out = capsys.readouterr().out
    for word in ("runs[old]", "attention=[mha,gqa]", "a[/b] :key:", "[x]", "see [y]"):
        assert word in out
