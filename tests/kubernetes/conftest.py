import pathlib
import sys

for folder in ("cluster", "helm"):
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / folder))
