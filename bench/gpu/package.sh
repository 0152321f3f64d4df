# shellcheck shell=bash
# bench/on_gpu --package and the libraries of a package, sourced by it.

# The libraries that a machine with a GPU has: those of the system and of CUDA.
readonly FOUND_THERE='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libcublasLt|libnccl)\.so'
readonly MOST_PACKAGE_MIB=64 # what may travel to such a machine

# Builds the programs of a suite for Hopper GPUs, for any processor with AVX2 and with few libraries.
build_for_package() { # SUITE PROGRAM...
  local options=(-DFLATSHARD_ONEDNN=OFF -DFLATSHARD_ARROW=OFF -DFLATSHARD_NATIVE=OFF -DCMAKE_CXX_FLAGS=-march=x86-64-v3)
  if [ "$1" != gpus ]; then options+=(-DFLATSHARD_MPI=OFF); fi
  configure "${options[@]}" -DFLATSHARD_CUDA_ARCHS=90a-real
  cmake --build "$BUILD" --parallel "$(nproc)" --target "${@:2}"
}

# Copies the programs of a suite without symbols, and the shared libraries that they need.
write_package() { # FOLDER SUITE
  local folder=$1 programs name library size
  case "$2" in
    speed) programs=(bench) ;;
    gpus) programs=(train prepare rank_matrix) ;;
    *) fail "--package is for --suite speed and for --gpus: the suite $2 builds on the machine" ;;
  esac
  [ ! -e "$folder" ] || [ -z "$(ls -A "$folder")" ] || fail "--package: $folder exists and is not empty"
  if [ ! -e "$BUILD" ]; then build_for_package "$2" "${programs[@]}"; fi
  for name in "${programs[@]}"; do
    [ -x "$BUILD/bin/$name" ] || fail "--package: $BUILD has no bin/$name: build it there, or name a new folder with --build"
  done
  mkdir -p "$folder/bin" "$folder/lib"
  for name in "${programs[@]}"; do
    strip -o "$folder/bin/$name" "$BUILD/bin/$name"
    ldd "$BUILD/bin/$name" | awk '$2 == "=>" && $3 ~ "^/" { print $3 }'
  done | sort -u | while read -r library; do
    if [[ ! ${library##*/} =~ $FOUND_THERE ]]; then strip -o "$folder/lib/${library##*/}" "$library"; fi
  done
  # Kernels are not compressed in a build with tests, which read their machine code.
  tar -C "${folder%/*}" -czf "$folder.tar.gz" "${folder##*/}"
  size=$(du -sm "$folder.tar.gz" | cut -f1)
  echo "$folder.tar.gz: ${programs[*]} and $(find "$folder/lib" -type f | wc -l) libraries, $size MiB; unpack it there, and name the folder as --build"
  [ "$size" -lt "$MOST_PACKAGE_MIB" ] || fail "--package: $folder.tar.gz has $size MiB, must be less than $MOST_PACKAGE_MIB"
}

# Lets the programs find the libraries of a package, and those of CUDA in its toolkit or among the packages of Python.
find_libraries() {
  local library found
  export LD_LIBRARY_PATH=$BUILD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  for library in $(ldd "$BUILD"/bin/* 2>/dev/null | awk '/=> not found/ { print $1 }' | sort -u); do
    found=$(find -L /usr/local/cuda/lib* "$("$PYTHON" -c 'import site; print(site.getsitepackages()[0])' 2>/dev/null)/nvidia" \
      -name "$library" 2>/dev/null | head -n 1)
    if [ -n "$found" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$(dirname "$found"); fi
  done
}
