#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {

std::vector<uint8_t> decode_png(std::span<const std::byte>, const ImageHeader&) {
  fail("is a PNG, which this build cannot read: install libpng-dev, then configure and build again");
}

}  // namespace flatshard
