"""Record and replay: the answers of models are stored by what was asked, and given again."""
