"""How the tensors of a state are coded: what a policy's rules come to for each of them."""

from __future__ import annotations

from . import codec
from .errors import warn
from .policy import Policy, Rule
from .schema import Schema

__all__ = ["Specs"]


class Specs:
    """The specs under one policy. Warns once of each rule that matches nothing."""

    def __init__(self, policy: Policy) -> None:
        """Name the policy."""
        self._policy = policy
        self._warned: set[int] = set()
        self._known: tuple[Schema, list[codec.Spec]] | None = None

    def of(self, schema: Schema) -> list[codec.Spec]:
        """Return the spec of each tensor. Those of the schema before are remembered."""
        if self._known is None or self._known[0] is not schema:
            self._known = schema, self._find(schema)
        return self._known[1]

    def _find(self, schema: Schema) -> list[codec.Spec]:
        specs: list[codec.Spec] = []
        rules: list[Rule | None] = []
        matched = set(self._warned)
        for path, kind, tensor in schema.leaves(attributes=True):
            if kind == "value":
                continue
            number = self._policy.match(path)
            rule = None if number is None else self._policy.rules[number]
            node = schema.tensors[tensor]
            spec = codec.spec_for(rule, path, node.dtype, node.shape)
            matched.add(-1 if number is None else number)
            if kind == "tensor":
                specs.append(spec)
                rules.append(rule)
            elif codec.is_exact(spec):
                specs[tensor] = spec
            elif rule is not None and not codec.is_exact(specs[tensor]):
                first = rules[tensor] = (rules[tensor] or rule).within(rule)
                specs[tensor] = codec.spec_for(first, node.path, node.dtype, node.shape)
        for number, rule in enumerate(self._policy.rules):
            # A rule for all the rest may find nothing left, and is no typing error.
            if number not in matched and rule.pattern != "*" and schema.tensors:
                self._warned.add(number)
                warn(f"the rule {rule.pattern!r} matches no tensor")
        return specs
