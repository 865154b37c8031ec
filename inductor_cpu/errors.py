"""The errors a person can meet, and what each of them asks the person to do.

`UserError`     something in the call, the settings or the machine has to change; the text says what.
`Unsupported`   a stage cannot express an operation; the caller catches it and sends the operation to ATen.
`InternalError` a defect of the compiler; it is never hidden, and the text names the stage and the dump folder.
"""

from __future__ import annotations


class IcpuError(Exception):
    """Base of every error that this package raises on purpose."""


class UserError(IcpuError):
    """The call, a setting, the environment or the machine must change. The message says how."""


class Unsupported(IcpuError):
    """A stage has no way to express `node`; `reason` is shown by `inductor_cpu.explain`.

    This is a signal between a rule and its caller, not a failure: the caller answers with an extern call.
    """

    def __init__(self, node: object, reason: str) -> None:
        super().__init__(f"{node}: {reason}")
        self.node = node
        self.reason = reason


class InternalError(IcpuError):
    """A defect of the compiler, found in `stage`. `dump` is the folder with the dumps of that compile, if any.

    Raise it `from` the original exception, so that the traceback keeps the place of the defect.
    """

    def __init__(self, stage: str, message: str, dump: str | None = None) -> None:
        self.stage = stage
        self.message = message
        self.dump = dump
        super().__init__(_internal_text(stage, message, dump))


def _internal_text(stage: str, message: str, dump: str | None) -> str:
    where = (
        f"The dump of this compile is in {dump}: please attach it to a report."
        if dump is not None
        else "Run again with ICPU_DUMP=<folder> to get a dump of every stage, and attach it to a report."
    )
    return (
        f"internal error of inductor_cpu in stage '{stage}': {message}\n"
        f"This is a defect of the compiler, not of the model. {where}\n"
        'To go on working, use backend="aot_eager" for this model.'
    )
