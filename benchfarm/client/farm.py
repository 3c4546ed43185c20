"""The class Farm: one method for each operation of a farm's HTTP API."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote

from benchfarm.client.answers import FarmAdvice, FarmAnswer
from benchfarm.client.connection import JSON, TOML, ZIP, FarmConnection, JsonValue
from benchfarm.client.errors import ClientError, RequestRefused, not_utf8
from benchfarm.client.frames import Library, frame_of
from benchfarm.client.handles import JobHandle, SweepHandle
from benchfarm.client.queries import MeasurementQuery, PlanQuery, RecommendationQuery

# What a sweep is given as: a file, the same as an object, or the file's text.
SweepSource = str | os.PathLike[str] | Mapping[str, Any]


class Farm:
    """A connection to a farm; `benchfarm.connect()` makes it. Also a context, which closes it.

    Every method raises a `ClientError` that says what to do. `version`: the server's.
    """

    def __init__(self, connection: FarmConnection, *, version: str) -> None:
        self._connection = connection
        self.version = version

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connection."""
        self._connection.close()

    @property
    def url(self) -> str:
        """The farm's address."""
        return self._connection.url

    def __repr__(self) -> str:
        return f"<Farm {self.url}>"

    # Sweeps

    def submit(self, sweep: SweepSource, *, notify: Sequence[str] = ()) -> SweepHandle:
        """Enqueue a sweep: a path, a sweep file's text, or the same as an object.

        The training scripts that it names are read from here, beside the working folder, and sent
        along. A request that is sent again after a cut enqueues once. `notify`: web addresses that
        get a message when it ends, beside those that it names itself; the handle's `notify` has
        what each is signed with.
        """
        submitted = self._post_sweep("/sweeps", sweep, notify=notify)
        return SweepHandle(
            self._connection,
            submitted["id"],
            skipped=submitted["skipped"],
            notify=submitted.get("notify", ()),  # a server before 0.2.0 knows none
        )

    def preview(self, sweep: SweepSource) -> FarmAnswer:
        """Return the jobs that a sweep would become, and their expected time and cost."""
        return FarmAnswer(self._post_sweep("/sweeps/preview", sweep))

    def sweep(self, sweep_id: int) -> SweepHandle:
        """Return a sweep by its id."""
        handle = SweepHandle(self._connection, sweep_id)
        handle.refresh()
        return handle

    def sweeps(self) -> Iterator[SweepHandle]:
        """Yield all sweeps, the newest first."""
        for found in self._connection.items("/sweeps"):
            yield SweepHandle(self._connection, found["id"], summary=found)

    def send_bundle(self, archive: bytes) -> str:
        """Send a ZIP file of a script's files; return the `bundle_sha256` that a sweep names."""
        sent = self._connection.post("/bundles", content=archive, kind=ZIP)
        return str(sent["bundle_sha256"])

    # Jobs

    def job(self, job_id: int) -> JobHandle:
        """Return a job by its id."""
        job = JobHandle(self._connection, job_id)
        job.refresh()
        return job

    def jobs(self, *, sweep: int | None = None, state: str | None = None) -> Iterator[JobHandle]:
        """Yield jobs, of one sweep or in one state."""
        for found in self._connection.items("/jobs", sweep=sweep, state=state):
            yield JobHandle(self._connection, found["id"], summary=found)

    # Results and advice

    def measurements(
        self, *, library: Library = "pandas", **query: Unpack[MeasurementQuery]
    ) -> Any:
        """Return a frame with a row for each measurement: units in the names, flags beside them."""
        found = self._connection.items("/measurements", **query_parameters(query))
        return frame_of(list(found), library)

    def recommend(self, **query: Unpack[RecommendationQuery]) -> FarmAdvice:
        """Return which configuration to train on, and how sure that is."""
        return FarmAdvice(self._connection.get("/recommendation", **query_parameters(query)))

    def plan(self, **query: Unpack[PlanQuery]) -> FarmAnswer:
        """Return what to measure next; `answer["sweep"]` is a sweep file that can be submitted."""
        return FarmAnswer(self._connection.get("/plan", **query_parameters(query)))

    def origins(self, *, library: Library = "pandas") -> Any:
        """Return a frame of where measurements came from: the farm itself, and imported studies."""
        return frame_of(self._connection.get("/origins")["items"], library)

    def suspicious(self, origin: str, *, library: Library = "pandas") -> Any:
        """Return a frame of what seems wrong in an imported study."""
        found = self._connection.get(f"/origins/{_quoted(origin)}/suspicious")
        return frame_of(found["items"], library)

    # Agents and messages

    def notifications(self, *, sweep: int | None = None, library: Library = "pandas") -> Any:
        """Return a frame of the messages that were sent or wait, of one sweep if asked."""
        return frame_of(list(self._connection.items("/notifications", sweep=sweep)), library)

    def agents(self, *, library: Library = "pandas") -> Any:
        """Return a frame of the agents and what they are doing."""
        return frame_of(list(self._connection.items("/agents")), library)

    def drain(self, agent_id: str) -> FarmAnswer:
        """Give an agent no further job; its running job continues."""
        return FarmAnswer(self._connection.post(f"/agents/{_quoted(agent_id)}/drain"))

    def resume(self, agent_id: str) -> FarmAnswer:
        """Give a drained agent jobs again."""
        return FarmAnswer(self._connection.post(f"/agents/{_quoted(agent_id)}/resume"))

    def _post_sweep(self, path: str, sweep: SweepSource, *, notify: Sequence[str] = ()) -> Any:
        body = read_sweep(sweep)
        if isinstance(body, bytes):
            return self._connection.post(path, content=body, kind=TOML)
        if notify:
            named = body.get("notify", [])
            own = named if isinstance(named, list) else [named]
            body["notify"] = [*own, *([notify] if isinstance(notify, str) else notify)]
        # Scripts are the only part that needs more than this file.
        from farm.errors import InvalidSpec
        from farm.script_folder import with_bundles

        try:
            whole, scripts = with_bundles(body, home=lambda: None)
        except InvalidSpec as error:
            raise RequestRefused(str(error), status=422, field=error.field) from None
        for script in scripts:
            self.send_bundle(script.bundle.archive)
        return self._connection.post(path, whole, kind=JSON)


def read_sweep(sweep: SweepSource) -> dict[str, Any] | bytes:
    """Return a sweep as an object, or as bytes if its text is no TOML: the farm then says why."""
    if isinstance(sweep, Mapping):
        return dict(sweep)
    if isinstance(sweep, str) and "\n" in sweep:
        content = sweep.encode(errors="surrogatepass")  # TOML has none: the farm says so
    else:
        try:
            content = Path(sweep).read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ClientError(f"{os.fspath(sweep)!r}: {why}") from None
    try:
        return tomllib.loads(content.decode())
    except ValueError:
        return content


def query_parameters(query: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a query as the API names it: `pass_` is `pass`, a word that Python keeps to itself."""
    return {name.rstrip("_"): value for name, value in query.items()}


def _quoted(name: str) -> str:
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise not_utf8(name) from None
