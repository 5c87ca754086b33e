"""The store in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure. An extra: `obstore`.

Credentials, region and endpoint are those of the environment (AWS_ACCESS_KEY_ID, AWS_REGION, AWS_ENDPOINT_URL, ...; for
a server without TLS also AWS_ALLOW_HTTP=true).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import pyarrow as pa

from ckb.errors import UserError
from ckb.storage import Stored

try:
    import obstore
    from obstore import exceptions, store
except ImportError as error:
    raise UserError(
        "a knowledge base in an object store needs the package obstore: pip install -c constraints.txt "
        "'enginesmith[object-store]'"
    ) from error


class ObjectStorage:
    """A prefix of one bucket. What creates a version is one conditional put, which the service carries out whole."""

    def __init__(self, url: str, **options: Any):
        """`options` go to `obstore.store.from_url`. Raises UserError for a URL or a setting that it can't use."""
        self.url = url.rstrip("/")
        try:
            self._store = store.from_url(self.url, **options)
        except (exceptions.BaseError, ValueError) as error:
            raise UserError(f"{url} can't be used as the place of a knowledge base: {_short(error)}") from error

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._errors(path):
            obstore.put(self._store, path, data, mode="create", use_multipart=False)

    def read(self, path: str) -> pa.Buffer:
        with self._errors(path):
            return pa.py_buffer(obstore.get(self._store, path).bytes())

    def modified(self, path: str) -> float:
        with self._errors(path):
            return float(obstore.head(self._store, path)["last_modified"].timestamp())

    def list(self, folder: str) -> list[Stored]:
        try:
            with self._errors(folder):
                found = [entry for chunk in obstore.list(self._store, f"{folder}/") for entry in chunk]
        except (
            OSError
        ) as error:  # the first thing that is asked of a store: what is wrong is the place or the way there
            raise UserError(
                f"{self.url} can't be listed: {error}; see to the bucket and to AWS_ENDPOINT_URL"
            ) from error
        stored = (Stored(entry["path"], entry["last_modified"].timestamp()) for entry in found)
        return sorted(stored, key=lambda one: one.path)

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError), self._errors(path):
            obstore.delete(self._store, path)

    def turn(self) -> AbstractContextManager[None]:
        return nullcontext()  # the writers are on machines that share nothing else

    def __str__(self) -> str:
        return self.url

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """The service's answers as the errors that Storage promises. A refusal is the user's to mend."""
        try:
            yield
        except exceptions.NotFoundError as error:
            raise FileNotFoundError(f"{self.url}/{path}") from error
        except exceptions.AlreadyExistsError as error:
            raise FileExistsError(f"{self.url}/{path}") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise UserError(
                f"{self.url} refuses {path}: {_short(error)}; see to the credentials in the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION)"
            ) from error
        except exceptions.BaseError as error:
            raise OSError(f"{self.url}/{path}: {_short(error)}") from error


def _short(error: Exception) -> str:
    """What obstore says, in a line: its message is a tree of causes, printed over many."""
    return " ".join(str(error).split())[:400]
