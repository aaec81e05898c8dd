"""extractor_hub: agents bring resources from extractors to a hub. The rules are one page: hub_rules.py."""
