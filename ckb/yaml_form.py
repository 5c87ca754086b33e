"""Fields as YAML in one form: the same fields give the same lines, and a change of one field changes just its lines.

A collection stands on one line where it fits; records in a list of a field have a line each at least. Nothing is
sorted: the order of the fields is that of the record, the order of a mapping its own.
"""

import io
from typing import Any

import yaml

WIDTH = 100
"""Columns: a text is broken at the first space behind them."""


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text and not text[0].isspace()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if block else None)


_Dumper.add_representer(str, _text)


def to_yaml(fields: dict[str, Any]) -> str:
    """The lines of a mapping of plain values: dict, list, str, int, float, bool, None. Empty for no fields."""
    if not fields:
        return ""
    root = _Dumper(io.StringIO(), sort_keys=False).represent_data(fields)
    root.flow_style = False
    for key, value in root.value:
        if isinstance(value, yaml.CollectionNode) and any(isinstance(c, yaml.CollectionNode) for c in _items(value)):
            value.flow_style = False
            _lay_out_items(value, _own_indent(value, 0))
        else:
            _lay_out(value, len(key.value) + 2, _own_indent(value, 0))
    return _serialize(root, WIDTH)


def _lay_out(node: yaml.Node, column: int, indent: int) -> None:
    """Decide whether a node that starts in `column` stands on that line; else its own lines start at `indent`."""
    if not isinstance(node, yaml.CollectionNode):
        return
    _flow(node)
    if _has_line_breaks(node) or column + len(_serialize(node, 1 << 30)) - 1 > WIDTH:
        node.flow_style = False
        _lay_out_items(node, indent)


def _lay_out_items(node: yaml.CollectionNode, indent: int) -> None:
    """Each item of a node whose own lines, with a dash or a key, start at `indent`."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _lay_out(item, indent + 2, indent + 2)
    else:
        for key, value in node.value:
            _lay_out(value, indent + len(key.value) + 2, _own_indent(value, indent))


def _own_indent(value: yaml.Node, indent: int) -> int:
    """Where the lines of a mapping's value start when they aren't its key's: a list's dashes stand below the key."""
    return indent if isinstance(value, yaml.SequenceNode) else indent + 2


def _flow(node: yaml.Node) -> None:
    if isinstance(node, yaml.CollectionNode):
        node.flow_style = True
        for item in _items(node):
            _flow(item)


def _has_line_breaks(node: yaml.Node) -> bool:
    if isinstance(node, yaml.CollectionNode):
        return any(map(_has_line_breaks, _items(node)))
    return "\n" in node.value


def _items(node: yaml.CollectionNode) -> list[yaml.Node]:
    """The items of a list, the keys and values of a mapping."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def _serialize(node: yaml.Node, width: int) -> str:
    text: str = yaml.serialize(node, Dumper=_Dumper, width=width, allow_unicode=True)
    return text
