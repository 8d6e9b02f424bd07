"""The checkpoint of a job: its number of finished samples, written atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole


class Checkpoint:
    """The checkpoint file at `path`. Without a file, no sample is finished."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> int:
        """The number of finished samples. Raises InputError if the file can't be read or isn't a checkpoint."""
        try:
            samples_done = json.loads(self._path.read_text(encoding="ascii"))["samples_done"]
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise InputError(
                str(self._path), f"can't read the checkpoint ({error.strerror}); correct the path"
            ) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                str(self._path), f"is not a checkpoint ({error}); remove it to start from the beginning"
            ) from error
        if type(samples_done) is not int or samples_done < 0:
            raise InputError(str(self._path), f"samples_done must be a whole number >= 0, not {samples_done!r}")
        return samples_done

    def save(self, samples_done: int) -> None:
        """Write the number of finished samples. Raises InputError if the file can't be written."""
        path = Path(os.path.realpath(self._path))  # a symbolic link stays one; what it names may be on a volume
        unfinished = path.with_name(f".{path.name}.emugpu")  # the user's directory may have a file with the suffix .new
        try:
            write_whole(path, json.dumps({"samples_done": samples_done}), sync=True, unfinished=unfinished)
        except OSError as error:
            fix = "give a path in a directory that this process may write"
            raise InputError(str(self._path), f"can't write the checkpoint ({error.strerror}); {fix}") from error
