"""Which sampled stacks nodes have written down."""

from agents.protocol import Profile, Profiled, Report
from campaign.control.news import News


class Profiles:
    """What nodes say of them; `of` has those of every node that has answered, in that order."""

    def __init__(self, news: News) -> None:
        self._news = news
        self.of: dict[str, tuple[Profile, ...]] = {}

    def take(self, node: str, report: Report) -> None:
        """Take a report; all but `Profiled` are passed over."""
        if isinstance(report, Profiled):
            self.of[node] = report.profiles
            self._news.tell()
