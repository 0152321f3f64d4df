#include "runtime/check.h"
#include "text/input/decompressor.h"

namespace flatshard {

std::unique_ptr<Decompressor> make_zstd_decompressor() {
  fail(
      "is compressed with zstd, which this build cannot read: decompress it with unzstd, or install "
      "libzstd-dev, then configure and build again");
}

}  // namespace flatshard
