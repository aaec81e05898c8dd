"""Free-form answers, compared with a reference by a judge model that reads them as data."""
