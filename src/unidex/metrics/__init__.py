"""How good predictions are: ranking metrics, propensities, bins by label frequency; streaming and mergeable."""
