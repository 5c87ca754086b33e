"""The composer: the built-in author. Deterministic, no key, no network, and no knowledge but its brief's."""

from roles.authors.composer.author import Composer

__all__ = ["Composer"]
