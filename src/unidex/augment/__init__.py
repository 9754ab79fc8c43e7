"""Further training points made from what is there: Gandalf and its variants, and changed copies of texts."""
