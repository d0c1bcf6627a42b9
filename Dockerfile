# The web service. Build: docker build -t hadahash .
# Run (read-only root file system, no privileges, reachable from this machine only):
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#     -p 127.0.0.1:8000:8000 -e HADAHASH_READ_TOKEN \
#     -v "$PWD/photos.index:/data/index:ro" -v "$PWD/runs/photos:/data/run:ro" -v "$PWD/photos:/data/images:ro" hadahash

FROM python:3.12-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY src ./src
# The service runs on the CPU; the CUDA libraries of the default wheels take 4 GB.
RUN python -m venv /opt/hadahash \
    && /opt/hadahash/bin/pip install --no-cache-dir --constraint constraints.txt \
        --index-url https://download.pytorch.org/whl/cpu torch torchvision \
    && /opt/hadahash/bin/pip install --no-cache-dir --constraint constraints.txt '.[serve,milvus]'

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin hadahash
COPY --from=build /opt/hadahash /opt/hadahash
ENV PATH=/opt/hadahash/bin:$PATH \
    HOME=/tmp \
    OMP_WAIT_POLICY=PASSIVE \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
# 0.0.0.0 inside the container: a read token is required, and the service does not start without one.
ENTRYPOINT ["hadahash", "serve"]
CMD ["/data/index", "--run", "/data/run", "--images", "/data/images", "--host", "0.0.0.0"]
