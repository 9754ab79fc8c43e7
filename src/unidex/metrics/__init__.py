"""How good predictions are: ranking metrics, propensities, bins by label frequency; streaming and mergeable."""

# Labels per text that count in averages over documents, subjects and pairs, as in Annif. It is here because the command
# line shows it in its help, without loading SciPy.
LIMIT = 10
