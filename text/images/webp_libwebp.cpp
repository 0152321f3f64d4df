#include <webp/decode.h>

#include "runtime/check.h"
#include "text/images/image_header.h"

namespace flatshard {

std::vector<uint8_t> decode_webp(std::span<const std::byte> file, const ImageHeader& header) {
  const auto* data = reinterpret_cast<const uint8_t*>(file.data());
  WebPBitstreamFeatures features{};
  const VP8StatusCode status = WebPGetFeatures(data, file.size(), &features);
  check(status != VP8_STATUS_NOT_ENOUGH_DATA, "is truncated: the WebP has no end; copy or download it again");
  check(status == VP8_STATUS_OK && features.has_animation == 0 && features.width == header.width &&
            features.height == header.height,
        "is a damaged WebP: replace it");
  const int channels = features.has_alpha ? 4 : 3;
  std::vector<uint8_t> pixels(static_cast<size_t>(header.width * header.height * channels));
  const auto decode_into = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  check(decode_into(data, file.size(), pixels.data(), pixels.size(), features.width * channels) != nullptr,
        "is a damaged or truncated WebP: replace it");
  return pixels;
}

}  // namespace flatshard
