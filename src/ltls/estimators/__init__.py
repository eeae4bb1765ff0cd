"""The scikit-learn estimators and what belongs to them."""
