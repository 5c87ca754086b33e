"""Reviewer: interface, imports and dtype of a tree against its contracts, on the syntax tree. Nothing is run."""

import ast
from collections.abc import Iterator

from ckb import syntax
from ckb.audit import source_violations
from ckb.predicate import predicate
from ckb.records import Contract
from roles.briefs import Finding, ReviewerAnswer, ReviewerBrief


def review(brief: ReviewerBrief) -> ReviewerAnswer:
    """Every deviation that the text of the tree shows."""
    needed = [contract for contract in brief.contracts if contract.module and applies(contract, brief)]
    findings: list[Finding] = []
    for file in dict.fromkeys(contract.module for contract in needed):
        contracts = sorted((c for c in needed if c.module == file), key=lambda c: c.order)
        findings += _file(brief, file, contracts)
    return ReviewerAnswer(findings=tuple(findings))


def applies(contract: Contract, brief: ReviewerBrief) -> bool:
    """Whether a contract is in force; one that depends on a decision which the author didn't name is not judged."""
    rule = predicate(contract.applies_to)
    return rule.choices() <= brief.choices.keys() and rule.holds(brief.facts, brief.choices)


def _file(brief: ReviewerBrief, file: str, contracts: list[Contract]) -> Iterator[Finding]:
    def finding(line: int, expected: str, found: str, contract: Contract = contracts[0]) -> Finding:
        return Finding(contract=contract.id, file=file, line=line, expected=expected, found=found)

    if file not in brief.files:
        yield finding(1, f"a file {file}", "no such file")
        return
    try:
        module = ast.parse(brief.files[file])
    except SyntaxError as error:
        yield finding(error.lineno or 1, "Python", f"{error.msg}")
        return
    for contract in contracts:
        for line, expected, found in _interface(module, contract):
            yield finding(line, expected, found, contract)
    for violation in source_violations(brief.files[file], file, brief.operators):
        yield finding(violation.line, "only what an engine may stand on", violation.what)
    for line, expected, found in _imports(module, set(brief.files)):
        yield finding(line, expected, found)
    if file == "kernels.py":
        for line, expected, found in _dtype(module, brief.facts.workload.dtype):
            yield finding(line, expected, found)


Deviation = tuple[int, str, str]


def _interface(module: ast.Module, contract: Contract) -> Iterator[Deviation]:
    for function in contract.interface:
        node = syntax.find(module, function.name)
        if node is None:
            yield 1, f"{function.name}: {function.does}", "no such definition"
            continue
        wanted = [tensor.name for tensor in function.takes]
        given = syntax.parameters(module, node)
        if wanted and (given is None or given[: len(wanted)] != wanted):
            found = f"({', '.join(given)})" if given is not None else "nothing that can be called"
            yield node.lineno, f"{function.name}({', '.join(wanted)})", found


def _imports(module: ast.Module, files: set[str]) -> Iterator[Deviation]:
    for level, name, node in syntax.imports(module):
        if level == 1 and f"{name}.py" not in files:
            yield node.lineno, "imports of the engine's own modules", f"from .{name}"


def _dtype(module: ast.Module, dtype: str) -> Iterator[Deviation]:
    node = syntax.members(module).get("DTYPE")
    found = syntax.dotted(node.value) if isinstance(node, ast.Assign) else "nothing"
    if found.rpartition(".")[2] != dtype:
        yield getattr(node, "lineno", 1), f"DTYPE = {dtype}", f"DTYPE = {found}"
