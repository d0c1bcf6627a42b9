# The web service. Build: docker build -t hadahash .
# Export the model of the index first: hadahash export runs/photos --onnx
# Run (read-only root file system, no privileges, reachable from this machine only):
#   docker run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#     -p 127.0.0.1:8000:8000 -e HADAHASH_READ_TOKEN -v hadahash-cache:/cache \
#     -v "$PWD/photos.index:/data/index:ro" -v "$PWD/runs/photos:/data/run:ro" -v "$PWD/photos:/data/images:ro" hadahash

FROM python:3.12-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY src ./src
# The service runs exported models with onnxruntime: neither torch nor CUDA is installed.
RUN python -m venv /opt/hadahash \
    && /opt/hadahash/bin/pip install --no-cache-dir --constraint constraints.txt '.[onnx,milvus]'

# Export the ready-made model once, where torch is installed; only its files are copied.
FROM build AS model
RUN python -m venv /opt/train \
    && /opt/train/bin/pip install --no-cache-dir --constraint constraints.txt \
        --index-url https://download.pytorch.org/whl/cpu torch torchvision \
    && /opt/train/bin/pip install --no-cache-dir --constraint constraints.txt '.[train,onnx,offline]' \
    && /opt/train/bin/hadahash export lite0 /opt/lite0.onnx --onnx

FROM python:3.12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin hadahash \
    && install --directory --owner 10001 --mode 700 /cache
COPY --from=build /opt/hadahash /opt/hadahash
COPY --from=model /opt/lite0.onnx /opt/hadahash/lib/python3.12/site-packages/hadahash/pretrained/lite0.onnx
ENV PATH=/opt/hadahash/bin:$PATH \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    OMP_WAIT_POLICY=PASSIVE \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Thumbnails and other caches: mount a volume at /cache. A new one gets the owner of this folder.
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
STOPSIGNAL SIGTERM
# 0.0.0.0 inside the container: a read token is required, and the service does not start without one.
ENTRYPOINT ["hadahash", "serve"]
CMD ["/data/index", "--run", "/data/run", "--images", "/data/images", "--host", "0.0.0.0"]
