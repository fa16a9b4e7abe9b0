# The playground in a container: a Hugging Face Space, a GPU host, or a laptop whose system has no Triton wheel.
#
#   docker build -t triton-playground .                            CUDA's libraries included, several GB
#   docker build -t triton-playground --build-arg TORCH_INDEX=cpu .    for a host without a GPU
#   docker run --rm -p 7860:7860 --gpus all triton-playground      leave --gpus out where there is none
#
# The base is Python's own image: CUDA's libraries come with PyTorch's wheels, ptxas with Triton's, and the driver
# with the host, so an image of CUDA's would carry a second copy (docs/decisions/container.md).
FROM python:3.12-slim-bookworm

# gcc at run time: Triton compiles its launcher when a kernel first runs; g++ is for torch.compile on a CPU.
# The folders are made here because a builder other than BuildKit would give WORKDIR's to root, and Docker gives a
# volume to whom the image gives its place.
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 user \
    && install -d -o user -g user /home/user/app /home/user/.cache

USER user
WORKDIR /home/user/app

# What the NVIDIA container runtime is to bring in: the driver for computing, and nvidia-smi.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    UV_NO_CACHE=1

# No GPU is there while an image is built, so what pip chooses (CUDA) is the default here.
ARG TORCH_INDEX=
COPY --chown=user requirements.txt ./
COPY --chown=user tools/install.py tools/
RUN TORCH_INDEX="$TORCH_INDEX" python tools/install.py requirements.txt

COPY --chown=user . .

# Everything that is written goes below one folder: mount a volume there to keep compiled kernels and the model.
ENV GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    XDG_CACHE_HOME=/home/user/.cache \
    HF_HOME=/home/user/.cache/huggingface \
    TRITON_CACHE_DIR=/home/user/.cache/triton \
    TORCHINDUCTOR_CACHE_DIR=/home/user/.cache/inductor
EXPOSE 7860
HEALTHCHECK --start-period=60s --interval=30s --timeout=10s \
    CMD .venv/bin/python -c "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['GRADIO_SERVER_PORT'], timeout=8)"
CMD [".venv/bin/python", "app.py"]
