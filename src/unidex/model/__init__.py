"""The trained model: its folder, its labels and their journal, incremental learning, explanation, similar labels."""
