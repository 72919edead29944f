"""The one family of exceptions. Each is raised where its boundary is crossed, once, and
its text says what, where, got, expected, and what to do.

    HarnessError
    |- UsageError         wrong flags or settings; the command exits with 2
    |  |- DataMissing     a corpus file is not where it should be
    |  |- SettingsChanged the run exists with other settings
    |- StoreError         the run's store cannot be read or written
    |- ServerDied         the pool or the endpoint is gone, or never became ready
    |- BudgetSpent        the next request could cost more than the budget has left
    |- RequestFailed      a request did not bring a reply, retries included
    |  |- RequestTimeout  ... in time
    |  |- RequestRejected ... because the server refused it (4xx)
    |  |- BadReply        ... that is one: the server answered, with something else
    |- PromptTooLong      a prompt does not fit the model's window

`kind` is what ledgers count by. A `fatal` error says that the run cannot go on (it is no
property of the sample at hand): it stops the run, which can be resumed.
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of all errors that the project raises on purpose."""

    kind = "error"
    fatal = False


class UsageError(HarnessError):
    """The command or a settings file asks for something that cannot be."""

    kind = "usage"
    fatal = True


class DataMissing(UsageError):
    """A corpus file is missing; the text says which, and where to put it."""

    kind = "data_missing"


class SettingsChanged(UsageError):
    """The run folder holds results of other settings; the text is a diff."""

    kind = "settings_changed"


class StoreError(HarnessError):
    """The run's store cannot be read or written."""

    kind = "store"
    fatal = True


class ServerDied(HarnessError):
    """A server is gone or did not become ready; the text holds the tail of its log."""

    kind = "server_died"
    fatal = True


class BudgetSpent(HarnessError):
    """The next request could cost more than the run's budget has left."""

    kind = "budget"
    fatal = True


class RequestFailed(HarnessError):
    """A request brought no reply, bounded retries included."""

    kind = "request_failed"


class RequestTimeout(RequestFailed):
    """No reply within the time limit."""

    kind = "timeout"


class RequestRejected(RequestFailed):
    """The server refused the request (4xx other than 429); it is not sent again."""

    kind = "rejected"


class BadReply(RequestFailed):
    """The server answered 200 with something that is no reply to what was asked."""

    kind = "bad_reply"


class PromptTooLong(HarnessError):
    """The rendered prompt and the reply budget do not fit the model's window."""

    kind = "prompt_too_long"
