#include "runtime/check.h"
#include "text/input/decompressor.h"

namespace flatshard {

std::unique_ptr<Decompressor> make_gzip_decompressor() {
  fail(
      "is compressed with gzip, which this build cannot read: decompress it with gunzip, or install "
      "zlib1g-dev, then configure and build again");
}

}  // namespace flatshard
