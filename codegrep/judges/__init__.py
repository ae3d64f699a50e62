"""Language models and rules that judge files, answers and turns."""
