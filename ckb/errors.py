"""The errors that a user can mend. Everything else that goes wrong is ours, and surfaces as a traceback."""


class UserError(Exception):
    """Bad input or a missing means. The command line prints the message alone and exits with status 2.

    The message says what was asked for, what is there (with the numbers) and which field or command changes it.
    """


class Damaged(UserError):
    """A file of the knowledge base is missing, or does not hold what was written."""


class PlaceError(UserError, OSError):
    """The place of the knowledge base refuses what was asked: a full disk, a missing right, a folder in the way."""


class KnowledgeGap(UserError):
    """A contract that the Target needs has no verified fragment for it in this version of the knowledge base."""

    def __init__(self, contract: str, needed_for: str):
        super().__init__(contract, needed_for)  # both, so that it survives the way between processes
        self.contract = contract
        self.needed_for = needed_for

    def __str__(self) -> str:
        return f"the knowledge base has no fragment for contract {self.contract!r}, needed for {self.needed_for}"
