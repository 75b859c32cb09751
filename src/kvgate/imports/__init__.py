"""Result files of other load generators as evidence, each with what it cannot prove."""
