#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {

std::vector<uint8_t> decode_webp(std::span<const std::byte>, const ImageHeader&) {
  fail("is a WebP, which this build cannot read: install libwebp-dev, then configure and build again");
}

}  // namespace flatshard
