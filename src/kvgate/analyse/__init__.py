"""Pure code from records to block statistics, validity and estimates."""
