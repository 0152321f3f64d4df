#include "runtime/check.h"
#include "text/input/decoder.h"

namespace flatshard {

std::unique_ptr<Decoder> make_zstd_decoder() {
  fail(
      "is compressed with zstd, which this build cannot read: decompress it with unzstd, or install "
      "libzstd-dev, then configure and build again");
}

}  // namespace flatshard
