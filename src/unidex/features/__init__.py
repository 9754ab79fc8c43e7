"""Text -> sparse features: words, n-grams, vocabulary, hashing, weights and a cache."""
