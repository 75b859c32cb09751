"""A campaign: one appliance at one site, its gates in order, and what each outcome lets happen.

Pure: which gate may open and which decision follows are functions of the sealed history. The
history itself is read from the bundles, so there is no second truth beside the evidence.
"""

from kvgate.campaign.calendar import day_zero, deadline_state, moment_of
from kvgate.campaign.changes import Change, changes_between, reopened
from kvgate.campaign.complete import OPENED, Noted, Witnesses
from kvgate.campaign.opening import open_gate
from kvgate.campaign.records import (
    CampaignFacts,
    Configuration,
    Mode,
    Opening,
    PastRun,
    Predecessor,
    ReliedOn,
    utc_text,
)
from kvgate.campaign.waived import deadline_of, in_force, proceeds

__all__ = [
    "OPENED",
    "CampaignFacts",
    "Change",
    "Configuration",
    "Mode",
    "Noted",
    "Opening",
    "PastRun",
    "Predecessor",
    "ReliedOn",
    "Witnesses",
    "changes_between",
    "day_zero",
    "deadline_of",
    "deadline_state",
    "in_force",
    "moment_of",
    "open_gate",
    "proceeds",
    "reopened",
    "utc_text",
]
