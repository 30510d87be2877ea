# syntax=docker/dockerfile:1
# multimdm in a container.
#
#   docker build --tag multimdm .                                        commands, on the CPU
#   docker build --tag multimdm:serve --target serve .                   a server
#   docker build --tag multimdm:cuda --build-arg COMPUTE=cuda .          with CUDA (docker run --gpus all)
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS wheel
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY recipes recipes
RUN PIP_CONSTRAINT=constraints.txt pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim-bookworm AS installed
# cpu: torch without CUDA, a fraction of the size; cuda: the wheel of PyPI, which brings CUDA's libraries.
ARG COMPUTE=cpu
# Where torch without CUDA is found beside PyPI: a mirror, or nothing if pip is configured to find it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY --from=wheel /wheels /wheels
COPY constraints.txt /wheels/
RUN set -eu; \
    case "$COMPUTE" in \
        cpu) more="${TORCH_INDEX:+--extra-index-url $TORCH_INDEX}" ;; \
        cuda) more="" ;; \
        *) echo "COMPUTE must be cpu or cuda; got $COMPUTE" >&2; exit 2 ;; \
    esac; \
    wheel="$(ls /wheels/multimdm-*.whl)"; \
    pip install --no-cache-dir --constraint /wheels/constraints.txt $more "${wheel}[train,hf,serve]"; \
    useradd --create-home --uid 1000 multimdm
USER multimdm
WORKDIR /home/multimdm
ENV PYTHONUNBUFFERED=1

# A server of the built-in models, or of those that are named behind it:
#   docker run --publish 127.0.0.1:8000:8000 multimdm:serve
#   docker run --publish 127.0.0.1:8000:8000 --volume "$PWD/runs/tales-mdlm/model:/model:ro" multimdm:serve /model
FROM installed AS serve
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
# A container's own loopback cannot be reached from outside; who may reach the published port is decided by --publish.
ENTRYPOINT ["multimdm", "serve", "--host", "0.0.0.0"]
CMD []

# The last one is built unless another is named.
FROM installed AS commands
ENTRYPOINT ["multimdm"]
CMD ["--help"]
