#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {

std::vector<uint8_t> decode_jpeg(std::span<const std::byte>, const ImageHeader&) {
  fail("is a JPEG, which this build cannot read: install libjpeg-dev, then configure and build again");
}

}  // namespace flatshard
