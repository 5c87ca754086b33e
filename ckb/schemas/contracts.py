"""Table `contracts`: what each part of an engine must do. The fields are documented on the record."""

from ckb.records import Contract
from ckb.schemas.arrow import schema_of

SCHEMA = schema_of(Contract)
