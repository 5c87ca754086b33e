"""Table `fragments`: code examples filed under contracts. The fields are documented on the record."""

from ckb.records import Fragment
from ckb.schemas.arrow import schema_of

SCHEMA = schema_of(Fragment)
