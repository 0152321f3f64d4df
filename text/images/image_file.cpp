#include "text/images/image_file.h"

#include <utility>

#include "runtime/check.h"
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

// Turns the picture upright. An orientation outside of 1 to 8 counts as 1.
Image oriented(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool turned = orientation >= 5;  // width and height are swapped
  const bool mirrored = orientation == 2 || orientation == 3 || orientation >= 7;  // left is right
  const bool upended = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image result{image.width, image.height, std::vector<uint8_t>(image.rgb.size())};
  int64_t step_x = mirrored ? -1 : 1, step_y = upended ? -image.width : image.width;  // steps in the input
  const int64_t first = (mirrored ? image.width - 1 : 0) + (upended ? (image.height - 1) * image.width : 0);
  if (turned) {
    std::swap(result.width, result.height);
    std::swap(step_x, step_y);
  }
  uint8_t* out = result.rgb.data();
  for (int64_t y = 0; y < result.height; ++y)
    for (int64_t x = 0; x < result.width; ++x, out += 3) {
      const uint8_t* in = image.rgb.data() + 3 * (first + x * step_x + y * step_y);
      out[0] = in[0];
      out[1] = in[1];
      out[2] = in[2];
    }
  return result;
}

}  // namespace

Image decoded(std::span<const std::byte> file, Transparency transparency, int64_t max_pixels) {
  const ImageHeader header = checked_header(file, max_pixels);
  Image image{header.width, header.height, decode(file, header)};
  if (std::ssize(image.rgb) == 4 * image.width * image.height) remove_opacity(image.rgb, transparency);
  return oriented(std::move(image), header.orientation);
}

}  // namespace flatshard
