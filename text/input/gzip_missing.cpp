#include "runtime/check.h"
#include "text/input/decoder.h"

namespace flatshard {

std::unique_ptr<Decoder> make_gzip_decoder() {
  fail(
      "is compressed with gzip, which this build cannot read: decompress it with gunzip, or install "
      "zlib1g-dev, then configure and build again");
}

}  // namespace flatshard
