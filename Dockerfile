# Flatshard's programs in an image. For CPUs, and for GPUs:
#   docker build -t flatshard .
#   docker build -t flatshard --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04 .
#   docker run --rm -v "$PWD:/work" flatshard mpirun -np 2 train my.toml
# BASE needs apt. With nvcc in it, the image has the CUDA back end; start it with --gpus all.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
COPY . /flatshard
WORKDIR /flatshard
RUN apt-get update && apt-get install -y --no-install-recommends dpkg-dev file git && bash -c '. .ci/setup && flatshard_install'
RUN cmake --preset package && cmake --build --preset package && cd build-package && cpack

FROM ${BASE}
COPY --from=build /flatshard/build-package/flatshard_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/flatshard_*.deb openmpi-bin \
    && rm -rf /tmp/flatshard_*.deb /var/lib/apt/lists/*
ENV PATH=/usr/lib/flatshard/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
WORKDIR /work
CMD ["train", "--help"]
