"""The images of a Docker engine: looked up, built, read and removed."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from lockbench.clusters.engine.connection import Connection, EngineError
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import docker
else:
    docker = lazy("docker")

BUILD_TIMEOUT_S = 1200
LOG_LINES = 15
# Of the processor, where servers under load have 1024 each: a build yields to what runs beside it.
BUILD_SHARES = 64

Labels = Mapping[str, str]
"""An empty value in a filter means: whatever its value."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its id names its content, its digest (if any) names it in a registry."""

    id: str
    digest: str | None
    labels: Labels


class ImageStore(Connection):
    """An engine's own store of images."""

    def image(self, ref: str) -> Image | None:
        """Look an image up; None when it is not there."""
        with self._asking(f"inspect image {ref}") as api:
            try:
                found = api.inspect_image(ref)
            except docker.errors.ImageNotFound:
                return None
        digests = found.get("RepoDigests") or [None]
        return Image(found["Id"], digests[0], dict(found["Config"].get("Labels") or {}))

    def image_refs(self, pattern: str) -> list[str]:
        """List the tags whose repository is like this (`lockbench-*`)."""
        with self._asking(f"list images {pattern}") as api:
            found = api.images(filters={"reference": pattern})
        return sorted(tag for image in found for tag in image["RepoTags"] or ())

    def free_disk_bytes(self) -> int | None:
        """Return what is free where the engine keeps its data; None when that is not this host."""
        with self._asking("ask about the engine") as api:
            root = Path(api.info()["DockerRootDir"])
        try:
            return shutil.disk_usage(root).free
        except OSError:
            return None

    def pull(self, ref: str) -> None:
        """Fetch an image from its registry, by its digest (`debian@sha256:…`)."""
        name, _, digest = ref.partition("@")
        with self._asking(f"pull {ref}") as api:
            for event in api.pull(name, tag=digest, stream=True, decode=True):
                if "error" in event:
                    raise EngineError(f"cannot pull {ref}: {event['error']}")

    def import_rootfs(self, tar: Path, ref: str) -> None:
        """Make an image out of a root file system's tar file."""
        name, _, tag = ref.rpartition(":")
        with self._asking(f"import {ref}", BUILD_TIMEOUT_S) as api:
            api.import_image_from_file(str(tar), repository=name, tag=tag, changes=['CMD ["bash"]'])

    def build(
        self,
        files: Mapping[str, bytes],
        ref: str,
        *,
        args: Mapping[str, str] | None = None,
        labels: Labels | None = None,
        cache: bool = True,
    ) -> None:
        """Build an image from a context held in memory, on the host's network."""
        log: list[str] = []
        with self._asking(f"build {ref}", BUILD_TIMEOUT_S) as api:
            for event in api.build(
                fileobj=pack(files),
                custom_context=True,
                tag=ref,
                buildargs=dict(args or {}),
                labels=dict(labels or {}),
                network_mode="host",
                container_limits={"cpushares": BUILD_SHARES},
                nocache=not cache,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=BUILD_TIMEOUT_S,  # or none at all
            ):
                log += str(event.get("stream", "")).splitlines()
                if "error" in event:
                    said = "\n".join(f"    {line}" for line in log[-LOG_LINES:] if line.strip())
                    raise EngineError(f"cannot build {ref}: {event['error']}\n{said}")

    def tag(self, image: str, ref: str) -> None:
        """Give an image one more name."""
        name, _, tag = ref.rpartition(":")
        with self._asking(f"tag {image} as {ref}") as api:
            api.tag(image, name, tag)

    def send_image(self, ref: str, to: ImageStore) -> None:
        """Put an image into another engine's store, under the same name."""
        with self._asking(f"save {ref}", BUILD_TIMEOUT_S) as api:
            to.load_image(ref, api.get_image(ref))

    def load_image(self, ref: str, saved: Iterator[bytes]) -> None:
        """Take an image that another store has saved."""
        with self._asking(f"load {ref}", BUILD_TIMEOUT_S) as api:
            for event in api.load_image(saved):
                if said := event.get("error") or event.get("message"):
                    raise EngineError(f"cannot load {ref}{self._on}: {said}")

    def remove_image(self, ref: str) -> None:
        """Remove an image's name, and the image when it was its last; none is no error."""
        with self._asking(f"remove image {ref}") as api:
            try:
                api.remove_image(ref, force=True)
            except docker.errors.ImageNotFound:
                return

    def read_image_file(self, image: str, path: str, *, labels: Labels) -> bytes | None:
        """Read one file out of an image, without running it; None when there is no such file. It
        takes a container that is never started."""
        with self._asking(f"read {path} of {image}") as api:
            made = api.create_container(image, command=["none"], labels=dict(labels))["Id"]
            try:
                return unpack(api, made, path).get(path)
            finally:
                api.remove_container(made, force=True)


def pack(files: Mapping[str, bytes]) -> io.BytesIO:
    """A tar archive; fixed times and owners, so that equal content is an equal archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, content in sorted(files.items()):
            archive.addfile(new_entry(path, len(content)), io.BytesIO(content))
    packed.seek(0)
    return packed


def new_entry(path: str, size: int) -> tarfile.TarInfo:
    """A file's entry in an archive, with a fixed time and owner."""
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size = size
    entry.mode = 0o644
    return entry


def unpack(api: docker.APIClient, container_id: str, path: str) -> dict[str, bytes]:
    """A container's file, or every file below a folder, by absolute path; nothing where there is
    none."""
    return {at: content.read() for at, _, content in files_of(api, container_id, path)}


def files_of(
    api: docker.APIClient, container_id: str, path: str
) -> Iterator[tuple[str, int, IO[bytes]]]:
    """The same, one after the other: absolute path, bytes, content. On disk meanwhile, because
    files may be large."""
    try:
        chunks, _ = api.get_archive(container_id, path)
    except docker.errors.NotFound:
        return
    with TemporaryFile() as packed:
        packed.writelines(chunks)
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            for member in archive:
                if content := archive.extractfile(member):
                    yield str(Path(path).parent / member.name), member.size, content
