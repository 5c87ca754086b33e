"""Fields as YAML in one form: the same fields give the same lines, and a change of one field changes just its lines.

A collection stands on one line where it fits; records in a list of a field have a line each at least, and so have
sentences in a list. Nothing is sorted: the order of the fields is that of the record, the order of a mapping its own.
The emitter is the one in Python: libyaml's breaks lines elsewhere, and isn't there on every machine.
"""

import io
import re
from typing import Any

import yaml

WIDTH = 100
"""Columns: a text is broken at the first space behind them."""
SENTENCE = 40
"""Columns: a longer text in a list has a line of its own."""
PLAIN = re.compile(r"\w([\w .()/*+-]*[\w.()*])?")
"""Texts that stand without quotes for sure."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and not text[0].isspace()
    style = "|" if block else '"' if text.startswith("'") else None  # three apostrophes in a row are hard to read
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(fields: dict[str, Any]) -> str:
    """The lines of a mapping of plain values: dict, list, str, int, float, bool, None. Empty for no fields."""
    if not fields:
        return ""
    root = _Dumper(io.StringIO(), sort_keys=False).represent_data(fields)
    assert isinstance(root, yaml.MappingNode)
    root.flow_style = False
    for key, value in root.value:
        if isinstance(value, yaml.CollectionNode) and any(isinstance(c, yaml.CollectionNode) for c in _items(value)):
            value.flow_style = False
            _lay_out_items(value, _own_indent(value, 0))
        else:
            _lay_out(value, len(key.value) + 2, _own_indent(value, 0))
    text: str = yaml.serialize(root, Dumper=_Dumper, width=WIDTH, allow_unicode=True)
    return text


def _lay_out(node: yaml.Node, column: int, indent: int) -> None:
    """Decide whether a node that starts in `column` stands on that line; else its own lines start at `indent`."""
    if not isinstance(node, yaml.CollectionNode):
        return
    _flow(node)
    if not _may_share_a_line(node) or column + _columns(node) > WIDTH:
        node.flow_style = False
        _lay_out_items(node, indent)


def _lay_out_items(node: yaml.CollectionNode, indent: int) -> None:
    """Each item of a node whose own lines, with a dash or a key, start at `indent`."""
    if _is_list(node):
        for item in node.value:
            _lay_out(item, indent + 2, indent + 2)
    else:
        for key, value in node.value:
            _lay_out(value, indent + len(key.value) + 2, _own_indent(value, indent))


def _own_indent(value: yaml.Node, indent: int) -> int:
    """Where the lines of a mapping's value start when they aren't its key's: a list's dashes stand below the key."""
    return indent if _is_list(value) else indent + 2


def _flow(node: yaml.Node) -> None:
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = True
        for item in _items(node):
            _flow(item)


def _may_share_a_line(node: yaml.Node) -> bool:
    if not isinstance(node, yaml.CollectionNode):
        return "\n" not in node.value
    texts = [item.value for item in node.value if isinstance(item, yaml.ScalarNode)] if _is_list(node) else []
    return max(map(len, texts), default=0) <= SENTENCE and all(map(_may_share_a_line, _items(node)))


def _columns(node: yaml.Node) -> int:
    """What a node takes on one line, at most: a text that might need quotes is counted with them."""
    if isinstance(node, yaml.CollectionNode):
        return max(2, sum(_columns(item) + 2 for item in _items(node)))
    text: str = node.value
    return len(text) if PLAIN.fullmatch(text) else len(text) + 2 + text.count("'")


def _is_list(node: yaml.Node) -> bool:
    return isinstance(node, yaml.SequenceNode)


def _items(node: yaml.CollectionNode) -> list[yaml.Node]:
    """The items of a list, the keys and values of a mapping."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)
