"""How a score is made: the layout of vectors, the parts of a score, candidates, fusion, kNN and calibration."""
