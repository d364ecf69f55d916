"""Runs a script in a budget. recoup.commands.run.arguments has checked the arguments."""

import argparse
import atexit

import recoup
from recoup.commands.exit_codes import USAGE_ERROR
from recoup.commands.misplaced import hint, misplaced_options, refused_option
from recoup.commands.own_lines import OwnLines
from recoup.commands.programs import cannot_open
from recoup.commands.run.ending import Ending
from recoup.commands.run.job import Job
from recoup.commands.run.program import find_program, run_as_python
from recoup.commands.run.settings import make_budget, why_not_entered
from recoup.commands.run.termination import Termination


def run(options: argparse.Namespace, ending: Ending) -> int:
    """Returns 0 when the program has ended. Exceptions of the program pass through."""
    recoup._load()  # completely: the program may use any name of the package at any time
    budget, settings = make_budget(options)
    own = OwnLines()
    try:
        program = find_program(options)
    except OSError as error:
        own.say(f"recoup run: error: {cannot_open(error)}")
        return USAGE_ERROR

    job = Job(budget, settings, options, own)
    # Registered first, so it runs last: the program's exit handlers still run in the budget.
    termination = Termination(own, quiet=options.quiet)
    atexit.register(ending.complete, job.end, termination)
    try:
        job.start()
    except (OSError, RuntimeError, ValueError) as error:
        options.fail(why_not_entered(error, options.spill))
    termination.install()

    def failed(error: BaseException) -> None:
        job.failed(error)
        ending.program_failed(error)
        names = misplaced_options(options.args, options.own_options)
        name = refused_option(error, names) if names and not options.quiet else None
        if name is not None:
            # Registered last, so it is printed before the program's exit handlers run.
            atexit.register(own.say_at_the_end, hint(name, options.script))

    run_as_python(program, failed)
    return 0
