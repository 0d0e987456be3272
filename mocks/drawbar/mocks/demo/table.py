"""The live form: one row per pod, rewritten in place, and a line with the current step.

If the terminal is too narrow for a column per step, the table shows the last step of each pod.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self, TextIO

from rich import console, live, spinner, text

from drawbar.mocks import cluster
from drawbar.mocks.demo import progress, screens, stages, summary
from drawbar.mocks.demo.progress import Step
from drawbar.mocks.fabric import journal

REFRESHES_PER_SECOND = 8
_HEADER = f"{'POD':<8}{'CLASS':<12}{'NODE':<8}{'DEVICE':<16}"
_LEAST_COLUMNS = 5  # of a step: 12.34


def _terminal() -> TextIO:
    """Return stdout, without the program's filter of control characters: those here are our own."""
    unfiltered: TextIO = getattr(sys.stdout, "raw", sys.stdout)
    return unfiltered


class LiveTable:
    """A live table; it is shown while entered."""

    def __init__(
        self,
        pods: Mapping[str, str],
        clock: Callable[[], float],
        steps: Sequence[Step] = progress.SIMULATED,
    ) -> None:
        self._columns = {
            step: f"{step.value:>{_LEAST_COLUMNS}}" for step in steps if step is not Step.DELETED
        }
        self._views = progress.views(progress.begin(pods))
        self._clock = clock
        self._origin = 0.0
        self._doing = "starting"
        self._out = console.Console(
            file=_terminal(),
            # With NO_COLOR, rich itself would still draw bold.
            color_system=None if console.Console().no_color else "auto",
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._spinner = spinner.Spinner("dots")
        self._finished = False
        self._live = live.Live(
            console=self._out,
            get_renderable=self._picture,
            refresh_per_second=REFRESHES_PER_SECOND,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def report_happening(self, what: cluster.Happening) -> None:
        """Show the awaited state below the table, or a restart above it."""
        if isinstance(what, cluster.Waiting):
            self._doing = what.what
        elif what.restarted:
            self._out.print(text.Text(f"{what.name} was started again, process {what.pid}", "yellow"))

    def report_step(self, view: progress.View, step: Step) -> None:
        """Fill a cell."""
        self._views = {**self._views, view.pod: view}
        self._doing = f"{view.pod} {step.value}"

    def report_fabric(self, entry: journal.Entry, at: float) -> None:
        """Show failures only; the table has the rest."""
        if entry.error:
            self._out.print(
                text.Text(f"{at:.1f} s: {entry.kind.value} of {entry.device} failed: {entry.error}", "red")
            )

    def report_ready(self, seconds: float) -> None:
        """Start the table's clock, and show the duration of set-up."""
        self._origin = self._clock()
        self._doing = f"the cluster runs after {seconds:.1f} s; creating the pods"

    def report_stuck(self, sentences: Sequence[str]) -> None:
        """Show the sentences in red above the table."""
        for sentence in sentences:
            self._out.print(text.Text(sentence, "red"))

    def report_whereabouts(self, where: stages.Whereabouts) -> None:
        """End the table, and show the hints below it."""
        self._end()
        self._out.print("\n".join(screens.hints(where)), soft_wrap=True)

    def report_summary(self, whole: summary.Summary) -> None:
        """End the table, and show the summary below it."""
        self._end()
        first, *rest = screens.lines(whole)
        self._out.print(text.Text(first, "green" if whole.good else "red"))
        if rest:
            self._out.print("\n".join(rest), soft_wrap=True)

    def _end(self) -> None:
        self._finished = True
        self._live.stop()

    def _picture(self) -> console.RenderableType:
        rows = self._rows() if any(view.steps for view in self._views.values()) else []
        return console.Group(*rows) if self._finished else console.Group(*rows, self._status())

    def _status(self) -> console.RenderableType:
        self._spinner.update(text=text.Text(f"{self._clock():5.1f} s  {self._doing}"))
        return self._spinner

    def _rows(self) -> list[text.Text]:
        names = " ".join(self._columns.values())
        wide = self._out.width >= len(_HEADER) + 1 + len(names)
        names = names if wide else "STEP"
        rows = [text.Text(f"{_HEADER} {names}", "bold")]
        for view in self._views.values():
            row = text.Text(f"{view.pod:<8}{view.device_class:<12}{view.node:<8}{view.device:<16}")
            row.append_text(self._all_steps(view) if wide else self._last_step(view))
            rows.append(row)
            if view.serial:
                cdi = f"  CDI {screens.short(view.cdi[0])}" if view.cdi else ""
                read = f'  read "{view.content}"' if view.content else ""
                rows.append(text.Text(f"        serial {view.serial}{cdi}{read}", "dim"))
        for row in rows:
            row.no_wrap = True
            row.overflow = "ellipsis"
        return rows

    def _all_steps(self, view: progress.View) -> text.Text:
        cells = text.Text()
        for step, name in self._columns.items():
            reached = step in view.steps
            cell = f"{view.steps[step] - self._origin:.2f}" if reached else "·"
            cells.append(f" {cell:>{len(name)}}", "green" if reached else "dim")
        return cells

    def _last_step(self, view: progress.View) -> text.Text:
        if not view.steps:
            return text.Text(" ·", "dim")
        last = max(reversed(list(view.steps)), key=view.steps.__getitem__)
        return text.Text(f" {last.value} {view.steps[last] - self._origin:.2f} s", "green")
