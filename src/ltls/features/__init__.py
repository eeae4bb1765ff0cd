"""Front ends, which turn numbers, texts and tables into features, and rows of features."""
