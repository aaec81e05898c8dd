"""Where a check begins to speak, each with its reason. A clean run, however small, stays below all of them."""

from __future__ import annotations

# How much is remembered. More of it is not looked at by the check that would need it, and its message says so.
EXAMPLES = 5  # line numbers of one finding: enough to look into, few enough to read
MOST_TASKS = 100_000  # about 400 bytes each; a choice of fifty thousand or more tells what the rest is like
MOST_TOOLS = 1_000  # a model may make names up
MOST_NAMES = 1_000  # so may a file
MOST_FAILED = 100_000  # keys that failed; of more, a sample of fifty thousand tells how many there are to 1%

# Below this many rollouts a share says nothing: what would be a warning is a note.
FEW = 5

# All rewards alike. At a pass rate of 5% or 95%, 20 in a row are alike in every third run, 50 in one of thirteen,
# 200 in one of 28,000.
ALIKE_NOTE = 20
ALIKE_WARNING = 50
ALIKE_ERROR = 200
ZERO_NOTE = 2  # all rewards 0: a few are no proof, but worth a look before more are collected

# Rewards far off. Beyond 10 is the rule of the guide (seed 002). The other is for smaller scales: ten robust standard
# deviations from the median, which no smooth distribution reaches; a deviation counts as at least 0.25, so that
# rewards of 0 and 1 (or -1 and 1), whose deviation can be 0, have no outliers; and what is not rare is a second mode.
OUTLIER_REWARD = 10.0
OUTLIER_DEVIATIONS = 10.0
OUTLIER_LEAST_DEVIATION = 0.25
OUTLIER_SHARE = 0.01
OUTLIER_LEAST = 100
SCALE_SHARE = 0.5  # more than half beyond 10: that is the scale of the rewards, not a mistake in some

LARGEST = 1e100  # a reward beyond it is infinite for every purpose, and its square is

# Answers.
EMPTY_WARNING = 0.01  # now and then a model says nothing
EMPTY_ERROR = 0.5
ERROR_ANSWERS_ERROR = 0.1
CUT_WARNING = 0.05  # each is scored as if it were an answer, so a few percent already bend the mean
REFUSALS_WARNING = 0.05  # fewer are a matter of taste
LOOPS_WARNING = 0.05
LOOP_CALLS = 3  # the same call twice can be a second try; three times it is a loop
LOOP_PERIOD = 4  # calls that take turns; more of them are a way of working
REPETITION_LEAST = 800  # characters: a model in a loop does not stop before that
REPETITION_WINDOW = 2_000  # the end of a text: a model that falls into a loop stays in it
REPETITION_TAIL = 32
REPETITION_TIMES = 8  # 250 characters said over and over; a refrain comes less often
REPETITION_TIMES_PLAIN = 30  # of digits and signs alone, because tables and grids end like that
PARAGRAPH_LONGEST = 8_000  # characters from one saying to the next; the look back is no longer
PARAGRAPH_TAIL = 200  # so much in the same words is no turn of phrase
PARAGRAPH_TIMES = 5  # a chorus comes back less often, and with verses between

# Tools.
TOOL_LEAST = 10  # calls of one tool; fewer may all be mistakes of the model
TOOL_FAILS = 0.95
UNKNOWN_WARNING = 0.01  # of the rollouts: a slip is the model's, a hundredth is the prompt's

# Tasks and their repeats.
REPEATS_LEAST = 4  # with fewer, an even chance gives all alike too often (1 in 4 with 3)
TASKS_LEAST = 20
NO_SIGNAL_NOTE = 0.5  # at a pass rate of 0.3 a quarter of all tasks never passes in four repeats
NO_SIGNAL_WARNING = 0.8
SAME_LENGTH = 80  # characters: shorter answers are the same by nature
SAME_SHARE = 0.75  # of a task's repeats
COLLAPSED_NOTE = 0.2  # of the tasks
COLLAPSED_WARNING = 0.5
DUPLICATE_WARNING = 0.01

# Reward against length. By chance |r| stays below 0.4 with a hundred rollouts (four standard errors).
CORRELATION = 0.6
CORRELATION_LEAST = 100
CORRELATION_TASKS = 10_000  # of more, a choice tells the same

# Time.
SLOW_TIMES = 20.0  # the median; long tails of honest work end before
SLOW_LEAST_S = 1.0  # nobody waits for less
SLOW_LEAST = 50
SLOW_WARNING = 0.01
VERIFY_LEAST = 20
VERIFY_LEAST_S = 0.05  # on average; a scripted model is quicker than any verifier
RETRIES_LEAST = 20
RETRIES_NOTE = 0.1
RETRIES_WARNING = 0.3

# Failures.
FAILED_WARNING = 0.05
FAILED_ERROR = 0.5
FAILED_LEAST = 20
