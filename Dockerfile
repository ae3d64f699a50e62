# The project in a container:
#     docker build -t codegrep .                   installs, then runs the tests
#     docker run --rm -v codegrep:/codegrep/outputs codegrep             the demo; its results stay in the volume
#     docker run --rm codegrep .venv/bin/python -m codegrep --help       any command
# `python scripts/dockerfile_steps.py` runs the RUN lines in a fresh folder where there is no Docker.
FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /codegrep
COPY . .
RUN make venv
RUN make test
CMD ["make", "demo"]
