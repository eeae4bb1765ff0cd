"""The scikit-learn estimators: fitting, prediction, explanation, loading."""
