#include "text/images/image_file.h"

#include <utility>

#include "runtime/check.h"
#include "text/images/exif.h"
#include "text/images/image_codecs.h"
#include "text/images/image_header.h"

namespace flatshard {
namespace {

using Bytes = std::span<const std::byte>;

ImageHeader checked_header(Bytes file, int64_t max_pixels) {
  const ImageHeader header = read_image_header(file);
  check(header.width <= kMaxImageSide && header.height <= kMaxImageSide &&
            header.width * header.height <= max_pixels,
        "has ", header.width, " x ", header.height, " pixels, at most ", max_pixels, " are read, and ",
        kMaxImageSide, " a side: make it smaller");
  return header;
}

std::vector<uint8_t> decode(Bytes file, const ImageHeader& header) {
  switch (header.kind) {
    case ImageKind::jpeg:
      return decode_jpeg(file, header);
    case ImageKind::png:
      return decode_png(file, header);
    case ImageKind::webp:
      return decode_webp(file, header);
  }
  fail("unknown kind of image");
}

// Computes a * over + (1 - a) * white, where a = opacity / 255, rounded as in Pillow's alpha_composite.
uint8_t over_white(uint32_t value, uint32_t opacity) {
  const uint32_t sum = ((value * opacity + 255 * (255 - opacity)) << 7) + (128 << 7);
  return static_cast<uint8_t>((((sum >> 8) + sum) >> 8) >> 7);
}

// Turns four bytes a pixel into three, in place.
void remove_opacity(std::vector<uint8_t>& pixels, Transparency transparency) {
  const bool shows_white = transparency == Transparency::over_white;
  uint8_t* out = pixels.data();
  for (size_t i = 0; i < pixels.size(); i += 4, out += 3)
    for (size_t c = 0; c < 3; ++c)
      out[c] = shows_white ? over_white(pixels[i + c], pixels[i + 3]) : pixels[i + c];
  pixels.resize(pixels.size() / 4 * 3);
}

}  // namespace

Image decoded(std::span<const std::byte> file, Transparency transparency, int64_t max_pixels) {
  const ImageHeader header = checked_header(file, max_pixels);
  Image image{header.width, header.height, decode(file, header)};
  if (std::ssize(image.rgb) == 4 * image.width * image.height) remove_opacity(image.rgb, transparency);
  return oriented(std::move(image), header.orientation);
}

}  // namespace flatshard
